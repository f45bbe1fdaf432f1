# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, join_gate, silu, silu_size, silu_slope, silu_slope_size, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    dgate, dup = t.dy * up * silu_slope(gate), t.dy * silu(gate)
    dgate_size, dup_size = silu_slope_size(gate, t.dy * up), silu_size(gate, t.dy)
    dx_size = {k: join_gate(dgate_size[k], dup_size[k], a) for k in dup_size}
    return {"dx": Expected(join_gate(dgate, dup, a), **dx_size, math=True), "dup": Expected(dup, **dup_size, math=True)}


# The slope at infinity is 0 * inf in one formula and 0 or 1 in another: no infinities here.
SPEC = Spec(
    "swiglu_backward",
    reference,
    variants=LAYOUTS,
    dims=gate_dims,
    special=("nan", "zero", "denormal", "large"),
    more_large=[{"dims": {}, "variant": v} for v in LAYOUTS[1:]],
)


def test_swiglu_backward(plan):
    plan.check()
