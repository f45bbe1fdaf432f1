# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec


def reference(t, a):
    return {"y": Expected(t.a + t.b, steps=1)}


SPEC = Spec("add", reference)


def test_add(plan):
    plan.check()
