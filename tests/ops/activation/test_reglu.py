# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    return {"y": Expected(np.maximum(gate, 0) * up, steps=1)}


SPEC = Spec("reglu", reference, variants=[*LAYOUTS], dims=gate_dims)


def test_reglu(plan):
    plan.check()
