# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec

N = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 511, 513, 1024, 1025]
SIZES = {"smoke": [1, 8, 65], "ci": [*N, 4097], "full": [*N, 2048, 4096, 4097, 16384]}


def dims(n, a, i):
    """channels, height and width of size n in turn; and few channels."""
    channels, height, width = ((n, 3, 5), (8, 2, n), (5, n, 4), (64, 4, max(n // 4, 1)), (2 + i % 3, 4, n))[i % 5]
    return {"batch": (2, 1, 3)[i % 3], "channels": channels, "height": height, "width": width}


def reference(t, a):
    return {"y": Expected(np.transpose(t.x, (0, 2, 3, 1)), exact=True)}


# 16-byte vectors on both sides; 3 channels
SPEC = Spec(
    "nchw_to_nhwc",
    reference,
    dims=dims,
    sizes=SIZES,
    probes=[{"n": 256, "i": 3}, {"n": 256, "i": 4}],
    more_large=[{"dims": {"channels": c, "height": 16, "width": 64}} for c in (64, 3)],
)


def test_nchw_to_nhwc(plan):
    plan.check()
