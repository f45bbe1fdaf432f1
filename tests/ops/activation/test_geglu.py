# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, gelu, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    return {"y": Expected(gelu(gate, a.form) * up, np.abs(gate * up), math=True)}


SPEC = Spec("geglu", reference, variants=[*LAYOUTS, {"form": "erf"}], dims=gate_dims)


def test_geglu(plan):
    plan.check()
