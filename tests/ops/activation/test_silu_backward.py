# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec
from harness.functions import silu_slope, silu_slope_size


def reference(t, a):
    return {"dx": Expected(t.dy * silu_slope(t.x), **silu_slope_size(t.x, t.dy), math=True)}


# The slope at infinity is 0 * inf in one formula and 0 or 1 in another: no infinities here.
SPEC = Spec("silu_backward", reference, special=("nan", "zero", "denormal", "large"))


def test_silu_backward(plan):
    plan.check()
