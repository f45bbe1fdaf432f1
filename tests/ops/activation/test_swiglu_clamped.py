# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, sigmoid, silu_size, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    gate, up = np.minimum(gate, a.limit), np.clip(up, -a.limit, a.limit)
    y = gate * sigmoid(a.alpha * gate) * (up + 1)
    return {"y": Expected(y, **silu_size(a.alpha * gate, (np.abs(up) + 1) / a.alpha), math=True)}


SPEC = Spec("swiglu_clamped", reference, variants=[*LAYOUTS, {"alpha": 1.0, "limit": 0.5}], dims=gate_dims)


def test_swiglu_clamped(plan):
    plan.check()
