# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import weight_of
from harness.spec import WIDE_ROWS
from harness.tolerance import DENORMAL


def inputs(rng, t, a):
    """Given statistics are a little off the true ones: an op that computes its own is found out."""
    if t["mean"] is not None:
        t["mean"] = t["x"].mean(-1) + 0.1
        t["rstd"] = 1.1 / np.sqrt(t["x"].var(-1) + a.eps)


def reference(t, a):
    mean = t.x.mean(-1) if t.mean is None else t.mean
    rstd = 1 / np.sqrt(t.x.var(-1) + a.eps) if t.rstd is None else t.rstd
    mean, rstd = mean[..., None], rstd[..., None]
    g, xhat = t.dy * weight_of(t, a), (t.x - mean) * rstd
    dx = rstd * (g - g.mean(-1, keepdims=True) - xhat * np.mean(g * xhat, -1, keepdims=True))
    terms = (np.abs(t.x) + np.abs(t.x).mean(-1, keepdims=True) + np.abs(mean)) * rstd
    sums = np.abs(g).mean(-1, keepdims=True) + terms * np.mean(np.abs(g) * terms, -1, keepdims=True)
    # What is lost of a denormal dy * weight comes out times rstd, by itself and through its product with xhat.
    floor = DENORMAL * rstd * (1 + np.abs(xhat)) * (1 + np.abs(xhat).mean(-1, keepdims=True))
    dy, rows = t.dy.reshape(a.rows, a.dim), (t.dy * xhat).reshape(a.rows, a.dim)
    return {
        "dx": Expected(dx, rstd * (np.abs(g) + sums), n=a.dim, floor=floor),
        "dweight": Expected(
            rows.sum(0), (np.abs(t.dy) * terms).reshape(a.rows, a.dim).sum(0), n=a.dim * max(a.rows, 1)
        ),
        "dbias": Expected(dy.sum(0), np.abs(dy).sum(0), n=max(a.rows, 1)),
    }


# More rows than a GPU of up to 170 SMs has blocks for, which then add up their sums in pairs; the last vectors are not there.
MANY = {"n": 4072, "lead": (343,)}
# The widest rows of bulk copies, and those that only the last row of the table takes
WIDE = [
    {"n": 16384, "lead": (2, 2)},
    {"n": 14344, "lead": (173,), "presence": ("dweight",)},
    {"n": 4072, "lead": (7, 49), "presence": ("dbias",)},
    *WIDE_ROWS,
]
SPEC = Spec(
    "layer_norm_backward",
    reference,
    variants=[{"eps": 1e-2}],
    inputs=inputs,
    probes=[MANY],
    wide=WIDE,
    more_large=[{"dims": {"dim": 128}}],
)


def test_layer_norm_backward(plan):
    plan.check()
