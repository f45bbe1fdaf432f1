# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import gelu


def reference(t, a):
    return {"y": Expected(gelu(t.x, a.form), np.abs(t.x), math=True)}  # 1 + erf cancels for negative x


SPEC = Spec("gelu", reference, variants=[{"form": "tanh"}])


def test_gelu(plan):
    plan.check()
