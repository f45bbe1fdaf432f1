# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec

N = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 511, 513, 1024, 1025]
SIZES = {"smoke": [1, 8, 65], "ci": [*N, 4097], "full": [*N, 2048, 4096, 4097, 16384]}


def dims(n, a, i):
    d1, d2, d3 = ((n, 3, 5), (3, 2, n), (5, n, 4), (4, 4, n))[i % 4]
    return {"batch": (2, 1, 3)[i % 3], "d1": d1, "d2": d2, "d3": d3}


def reference(t, a):
    height, width = (2, 3) if a.layout == "nchw" else (1, 2)
    return {"y": Expected(t.x.repeat(2, height).repeat(2, width), exact=True)}


SPEC = Spec(
    "upsample_nearest_2x", reference, variants=[{"layout": "nhwc"}], dims=dims, sizes=SIZES,
    probes=[{"n": 64, "i": 3, "variant": {}}, {"n": 64, "i": 3}],
    more_large=[{"dims": {"d1": 16, "d2": 8, "d3": 64}, "variant": {"layout": v}} for v in ("nchw", "nhwc")],
)  # fmt: skip


def test_upsample_nearest_2x(plan):
    plan.check()
