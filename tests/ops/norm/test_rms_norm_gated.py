# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.functions import sigmoid, silu, weight_of
from harness.spec import WIDE, WIDE_ROWS
from harness.tolerance import LEAST


def dims(n, a, i):
    return {"dim": n if a.group == 0 else -(-n // a.group) * a.group}


def reference(t, a):
    v = t.x if a.norm_before_gate else t.x * silu(t.z)
    group = a.group or max(a.dim, 1)
    groups = v.reshape(*v.shape[:-1], a.dim // group, group)
    rstd = 1 / np.sqrt(np.mean(groups**2, -1, keepdims=True) + a.eps)
    y = (groups * rstd).reshape(v.shape) * weight_of(t, a)
    if a.norm_before_gate:
        y = y * silu(t.z)
    # exp turns an error of z into one of |z|, and sigmoid underflows.
    floor = np.abs(y / sigmoid(t.z)) * LEAST
    return {"y": Expected(y, np.abs(y) * (1 + np.abs(t.z)), n=a.dim, steps=12, floor=floor, math=True)}


SPEC = Spec(
    "rms_norm_gated",
    reference,
    variants=[
        {"norm_before_gate": True},
        {"group": 4},
        {"group": 128, "norm_before_gate": True},
        {"group": 1, "eps": 0.1},
    ],
    dims=dims,
    probes=[WIDE],
    wide=[{**w, "variant": {"norm_before_gate": i % 2 == 1}} for i, w in enumerate(WIDE_ROWS)],
    more_large=[{"dims": {}, "variant": {"group": 128}}, {"dims": {"dim": 65544}}],
)


def test_rms_norm_gated(plan):
    plan.check()
