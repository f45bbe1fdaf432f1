# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec

N = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 511, 513, 1024, 1025]
SIZES = {"smoke": [1, 8, 65], "ci": [*N, 4097], "full": [*N, 2048, 4096, 4097, 16384, 65537]}


def dims(n, a, i):
    # 72 columns: rows of 16-byte vectors, and no whole number of tiles or strips
    return (
        {"m": n, "n": 7}, {"m": 33, "n": n}, {"m": n, "n": min(n, 128)}, {"m": n, "n": 72}, {"m": 64, "n": n}
    )[i % 5]  # fmt: skip


def reference(t, a):
    return {"y": Expected(np.swapaxes(t.x, -1, -2), exact=True)}


SPEC = Spec(
    "transpose_2d",
    reference,
    dims=dims,
    sizes=SIZES,
    probes=[{"n": 256, "i": 3, "lead": (3,)}],
    more_large=[{"dims": {"m": 256, "n": 72}}],
)


def test_transpose_2d(plan):
    plan.check()
