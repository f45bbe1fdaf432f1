# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import weight_of
from harness.spec import WHOLE, WIDE, WIDE_ROWS, WIDE_WHOLE


def reference(t, a):
    rstd = 1 / np.sqrt(np.mean(t.x**2, -1, keepdims=True) + a.eps)
    return {"y": Expected(t.x * rstd * weight_of(t, a), n=a.dim), "rstd": Expected(rstd[..., 0], n=a.dim)}


SPEC = Spec(
    "rms_norm",
    reference,
    variants=[{"eps": 1e-3, "weight_offset": 1.0}, {"eps": 1e-12}],
    probes=[WIDE, WIDE_WHOLE, WHOLE],
    wide=WIDE_ROWS,
    more_large=[{"dims": {"dim": n}} for n in (64, 65544)],
)


def test_rms_norm(plan):
    plan.check()
