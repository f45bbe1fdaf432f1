# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, gelu, gelu_slope, gelu_slope_magnitude, join_gate, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    dgate, dup = t.dy * up * gelu_slope(gate, a.form), t.dy * gelu(gate, a.form)
    dgate_size, dup_size = np.abs(t.dy * up) * gelu_slope_magnitude(gate), np.abs(t.dy * gate)
    return {
        "dx": Expected(join_gate(dgate, dup, a), join_gate(dgate_size, dup_size, a), math=True),
        "dup": Expected(dup, dup_size, math=True),
    }


# The slope at infinity is 0 * inf in one formula and 0 or 1 in another: no infinities here.
SPEC = Spec(
    "geglu_backward",
    reference,
    variants=[*LAYOUTS, {"form": "erf"}],
    dims=gate_dims,
    special=("nan", "zero", "denormal", "large"),
)


def test_geglu_backward(plan):
    plan.check()
