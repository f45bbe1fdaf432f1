# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec
from harness.functions import silu, silu_size


def reference(t, a):
    return {"y": Expected(silu(t.x), **silu_size(t.x), math=True)}


SPEC = Spec("silu", reference)


def test_silu(plan):
    plan.check()
