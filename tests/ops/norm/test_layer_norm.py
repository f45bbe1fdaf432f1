# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import far_from_zero, weight_of
from harness.spec import WHOLE, WIDE, WIDE_ROWS, WIDE_WHOLE


def reference(t, a):
    mean = t.x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(np.mean((t.x - mean) ** 2, -1, keepdims=True) + a.eps)
    w, b = weight_of(t, a), 0.0 if t.bias is None else t.bias
    # x - mean carries the error of a mean whose terms are as large as |x|.
    terms = np.abs(t.x) + np.abs(t.x).mean(-1, keepdims=True)
    return {
        "y": Expected((t.x - mean) * rstd * w + b, terms * rstd * np.abs(w) + np.abs(b), n=a.dim),
        # Kept as two numbers that are added: a row with an infinity in it has no mean.
        "mean": Expected(np.where(np.isfinite(mean), mean, np.nan)[..., 0], np.abs(t.x).mean(-1), n=a.dim),
        "rstd": Expected(rstd[..., 0], np.max(terms, -1, initial=0) * rstd[..., 0] ** 2 + rstd[..., 0], n=a.dim),
    }


# Enough rows for blocks that stay, on up to 200 SMs, and not the same number for each: one row to a block, and two.
CROWDS = [(4096, 4003), (2048, 8006)]
SPEC = Spec(
    "layer_norm",
    reference,
    variants=[{"eps": 1e-2}],
    inputs=far_from_zero,
    probes=[WIDE, WIDE_WHOLE, WHOLE],
    crowds=CROWDS,
    wide=WIDE_ROWS,
    more_large=[{"dims": {"dim": 65544}}],
)


def test_layer_norm(plan):
    plan.check()
