# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec


def reference(t, a):
    return {"y": Expected(np.maximum(t.x, 0) ** 2, steps=1)}


SPEC = Spec("relu2", reference)


def test_relu2(plan):
    plan.check()
