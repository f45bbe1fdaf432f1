# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import gelu_slope, gelu_slope_magnitude


def reference(t, a):
    return {"dx": Expected(t.dy * gelu_slope(t.x, a.form), np.abs(t.dy) * gelu_slope_magnitude(t.x), math=True)}


# The slope at infinity is 0 * inf in one formula and 0 or 1 in another: no infinities here.
SPEC = Spec("gelu_backward", reference, variants=[{"form": "tanh"}], special=("nan", "zero", "denormal", "large"))


def test_gelu_backward(plan):
    plan.check()
