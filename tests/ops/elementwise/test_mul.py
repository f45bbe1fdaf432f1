# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec


def reference(t, a):
    return {"y": Expected(t.a * t.b, steps=1)}


SPEC = Spec("mul", reference)


def test_mul(plan):
    plan.check()
