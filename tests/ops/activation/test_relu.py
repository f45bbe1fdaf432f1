# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec


def reference(t, a):
    return {"y": Expected(np.maximum(t.x, 0), exact=True)}


SPEC = Spec("relu", reference)


def test_relu(plan):
    plan.check()
