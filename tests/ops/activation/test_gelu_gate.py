# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, gelu, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    return {"y": Expected(gelu(gate, a.form) * (up + 1), np.abs(gate) * (np.abs(up) + 1), math=True)}


SPEC = Spec("gelu_gate", reference, variants=[*LAYOUTS, {"form": "tanh"}], dims=gate_dims)


def test_gelu_gate(plan):
    plan.check()
