# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec

# Halfway cases, the edge of f16, and what it and bf16 can only hold as denormals.
HARD = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 65504.0, 65519.0, 65520.0, -7e4, 2.0**-24, 2.0**-25,
        3 * 2.0**-26, 2.0**-133, 2.0**-134, 3.3e38, -0.0]  # fmt: skip


def inputs(rng, t, a):
    """Every other element is a hard one, but for what special rows are given."""
    flat = t["x"].reshape(-1)
    usual = np.isfinite(flat) & (np.abs(flat) > 2.0**-130) & (flat != 1000)
    hard = np.flatnonzero(usual & (np.arange(flat.size) % 2 == 0))
    flat[hard] = np.resize(HARD, hard.shape)


def reference(t, a):
    return {"y": Expected(t.x, exact=True)}


SPEC = Spec(
    "cast",
    reference,
    inputs=inputs,
    more_large=[{"dims": {}, "dtypes": (("S", s), ("D", "bf16"))} for s in ("f32", "bf16")],
)


def test_cast(plan):
    plan.check()
