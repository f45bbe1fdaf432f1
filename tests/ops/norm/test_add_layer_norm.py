# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import add_residual, far_from_zero, weight_of
from harness.spec import WHOLE, WIDE, WIDE_ROWS, WIDE_WHOLE


def reference(t, a):
    r = add_residual(t, a)
    mean = r.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(np.mean((r - mean) ** 2, -1, keepdims=True) + a.eps)
    w, b = weight_of(t, a), 0.0 if t.bias is None else t.bias
    terms = np.abs(r) + np.abs(r).mean(-1, keepdims=True)
    return {
        "residual": Expected(r, exact=True),
        "y": Expected((r - mean) * rstd * w + b, terms * rstd * np.abs(w) + np.abs(b), n=a.dim),
    }


SPEC = Spec(
    "add_layer_norm",
    reference,
    variants=[{"eps": 1e-2}],
    inputs=far_from_zero,
    probes=[WIDE, WIDE_WHOLE, WHOLE],
    wide=WIDE_ROWS,
    more_large=[{"dims": {"dim": 65544}}],
)


def test_add_layer_norm(plan):
    plan.check()
