# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Quantized, Spec
from harness.functions import weight_of
from harness.spec import WHOLE, WIDE, WIDE_ROWS


def reference(t, a):
    rstd = 1 / np.sqrt(np.mean(t.x**2, -1, keepdims=True) + a.eps)
    y = Quantized(t.x * rstd * weight_of(t, a), a.group, a.Q, n=a.dim)
    return {"y": y, "scale": y.scale()}


THIRDS = {"n": 5376, "lead": (6,)}  # three vectors in a thread of 16-bit values

SPEC = Spec(
    "rms_norm_quant",
    reference,
    variants=[{"group": 128}, {"group": 16, "weight_offset": 1.0}, {"group": 7, "eps": 1e-3}],
    probes=[WIDE, {**WIDE, "variant": {"group": 128}}, WHOLE, THIRDS],
    wide=[{**w, "variant": v} for w in WIDE_ROWS for v in ({}, {"group": 128})],
    more_large=[{"dims": {"dim": n}, "variant": {"group": 128}} for n in (4096, 65536 + 128)]
    + [{"dims": {"dim": 5376}}],
)


def test_rms_norm_quant(plan):
    plan.check()
