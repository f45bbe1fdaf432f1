# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.spec import WIDE, WIDE_ROWS


def reference(t, a):
    return {"y": Expected(t.x / np.sqrt(np.sum(t.x**2, -1, keepdims=True) + a.eps), n=a.dim)}


SPEC = Spec(
    "l2_norm",
    reference,
    variants=[{"eps": 1e-2}],
    probes=[WIDE],
    wide=WIDE_ROWS,
    more_large=[{"dims": {"dim": 65544}}],
)


def test_l2_norm(plan):
    plan.check()
