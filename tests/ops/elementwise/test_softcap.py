# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec


def reference(t, a):
    return {"y": Expected(a.cap * np.tanh(t.x / a.cap), math=True)}


SPEC = Spec("softcap", reference, variants=[{"cap": 2.0}, {"cap": 0.1}])


def test_softcap(plan):
    plan.check()
