# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import weight_of
from harness.spec import WIDE_ROWS
from harness.tolerance import DENORMAL


def inputs(rng, t, a):
    """A given rstd is a little off the true one: an op that computes its own is found out."""
    if t["rstd"] is not None:
        t["rstd"] = 1.1 / np.sqrt(np.mean(t["x"] ** 2, -1) + a.eps)


def reference(t, a):
    rstd = 1 / np.sqrt(np.mean(t.x**2, -1) + a.eps) if t.rstd is None else t.rstd
    rstd = rstd[..., None]
    g, xhat = t.dy * weight_of(t, a), t.x * rstd
    dx = rstd * (g - xhat * np.mean(g * xhat, -1, keepdims=True))
    magnitude = rstd * (np.abs(g) + np.abs(xhat) * np.mean(np.abs(g * xhat), -1, keepdims=True))
    # What is lost of a denormal dy * weight comes out times rstd, by itself and through its product with xhat.
    floor = DENORMAL * rstd * (1 + np.abs(xhat)) * (1 + np.abs(xhat).mean(-1, keepdims=True))
    rows = (t.dy * xhat).reshape(a.rows, a.dim)
    return {
        "dx": Expected(dx, magnitude, n=a.dim, floor=floor),
        "dweight": Expected(rows.sum(0), np.abs(rows).sum(0), n=a.dim * max(a.rows, 1)),
    }


# More rows than a GPU of up to 170 SMs has blocks for, which then add up their sums in pairs; the last vectors are not there.
MANY = {"n": 4072, "lead": (343,)}
# The widest rows of bulk copies, and those that only the last row of the table takes
WIDE = [{"n": 16384, "lead": (2, 2)}, {"n": 14344, "lead": (173,), "presence": ("dweight",)}, *WIDE_ROWS]
SPEC = Spec(
    "rms_norm_backward",
    reference,
    variants=[{"eps": 1e-3, "weight_offset": 1.0}],
    inputs=inputs,
    probes=[MANY],
    wide=WIDE,
    more_large=[{"dims": {"dim": 128}}],
)


def test_rms_norm_backward(plan):
    plan.check()
