# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec


def reference(t, a):
    return {"y": Expected(t.x * a.alpha * (1 if t.by is None else t.by), steps=2)}


SPEC = Spec("scale", reference, variants=[{"alpha": -0.3}, {"alpha": 0.0}])


def test_scale(plan):
    plan.check()
