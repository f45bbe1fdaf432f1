# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec


def reference(t, a):
    y = np.zeros_like(t.y) if a.beta == 0 else a.beta * t.y  # beta = 0 never reads y
    return {"y": Expected(a.alpha * t.x + y, np.abs(a.alpha * t.x) + np.abs(y), steps=2)}


def inputs(rng, t, a):
    if a.beta == 0:
        t["y"][...] = np.nan


SPEC = Spec("axpby", reference, variants=[{"alpha": 0.5, "beta": -2.0}, {"alpha": 2.0, "beta": 0.0}], inputs=inputs)


def test_axpby(plan):
    plan.check()
