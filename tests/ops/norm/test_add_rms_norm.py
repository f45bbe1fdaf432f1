# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import add_residual, weight_of
from harness.spec import WHOLE, WIDE, WIDE_ROWS, WIDE_WHOLE


def reference(t, a):
    r = add_residual(t, a)
    rstd = 1 / np.sqrt(np.mean(r**2, -1, keepdims=True) + a.eps)
    return {
        "residual": Expected(r, exact=True),
        "y": Expected(r * rstd * weight_of(t, a), n=a.dim),
        "rstd": Expected(rstd[..., 0], n=a.dim),
    }


SPEC = Spec(
    "add_rms_norm",
    reference,
    variants=[{"eps": 1e-3, "weight_offset": 1.0}],
    probes=[WIDE, WIDE_WHOLE, WHOLE],
    wide=WIDE_ROWS,
    more_large=[{"dims": {"dim": 65544}}],
)


def test_add_rms_norm(plan):
    plan.check()
