# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, Spec
from harness.tolerance import DENORMAL

N = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 196, 255, 257, 1023, 1024, 1025, 4096]
SIZES = {"smoke": [1, 8, 65], "ci": [*N, 16384], "full": [*N, 4097, 16384, 65536, 262144]}


def dims(n, a, i):
    """n positions; as many channels as groups, or a few times more; in nhwc also such that groups are whole vectors."""
    nchw = a.layout == "nchw"
    of_group = (1, 2, 3, 4)[i % 4] if nchw else (8, 1, 2, 3, 24, 4, 40, 16)[i % 8]
    channels = a.groups * (of_group if n < 2000 else min(of_group, 16))
    outer, inner = (channels, n) if nchw else (n, channels)
    return {"batch": (2, 1, 3)[i % 3] if n < 2000 else 1, "outer": outer, "inner": inner}


def inputs(rng, t, a):
    """Half of the groups far from 0: squares of such a mean leave few digits for the deviations."""
    x = t["x"] if a.layout == "nchw" else t["x"].transpose(0, 2, 1)
    x[:, a.channels // 2 :] += 12


def reference(t, a):
    x = t.x if a.layout == "nchw" else t.x.transpose(0, 2, 1)
    g = x.reshape(a.batch, a.groups, a.channels // a.groups * a.positions)
    mean = g.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(np.mean((g - mean) ** 2, -1, keepdims=True) + a.eps)
    w = np.ones(a.channels) if t.weight is None else t.weight
    b = np.zeros(a.channels) if t.bias is None else t.bias
    w, b = w[:, None], b[:, None]
    y = ((g - mean) * rstd).reshape(x.shape) * w + b
    terms = (np.abs(g) + np.abs(g).mean(-1, keepdims=True)) * rstd
    magnitude = terms.reshape(x.shape) * np.abs(w) + np.abs(b)
    # What is lost of a denormal x - mean comes out times rstd and weight.
    floor = DENORMAL * np.broadcast_to(rstd, g.shape).reshape(x.shape) * np.abs(w)
    if a.layout == "nhwc":
        y, magnitude, floor = (v.transpose(0, 2, 1) for v in (y, magnitude, floor))
    return {"y": Expected(y, magnitude, n=g.shape[-1], floor=floor)}


# More than 96 KB of a group, or of neighbouring groups, go to a cluster of blocks in any dtype. The next have the same
# number of vectors for every thread. The last are several whole parts of each channel, for kernels in two passes.
PROBES = [
    {"n": 12296, "i": 3, "variant": {"groups": 2}},
    {"n": 776, "i": 7, "variant": {"groups": 4, "layout": "nhwc"}},
    {"n": 16384, "i": 3, "variant": {"groups": 2}},
    {"n": 1024, "i": 7, "variant": {"groups": 4, "layout": "nhwc"}},
    {"n": 4096, "i": 7, "variant": {"groups": 4, "layout": "nhwc"}},
    {"n": 32768, "i": 1, "variant": {"groups": 2}},
]
SPEC = Spec(
    "group_norm",
    reference,
    variants=[{"layout": "nhwc"}, {"groups": 4, "eps": 1e-2}, {"groups": 1}, {"groups": 5, "layout": "nhwc"}],
    dims=dims,
    inputs=inputs,
    sizes=SIZES,
    probes=PROBES,
    wide=PROBES,
    # A group in a cluster; several neighbouring groups in a block, and in a cluster
    more_large=[
        {"dims": {"outer": 4, "inner": 32768}, "variant": {"groups": 2}},
        {"dims": {"outer": 256, "inner": 256}, "variant": {"layout": "nhwc"}},
        {"dims": {"outer": 2048, "inner": 64}, "variant": {"groups": 4, "layout": "nhwc"}},
    ],
)


def test_group_norm(plan):
    plan.check()
