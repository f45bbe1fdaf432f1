# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, MatrixSpec
from harness.matrix import activate, gate, product, rounded

SHARDS = 2  # processes of tools/gpu-check

VARIANTS = [
    {"act": "silu", "gated": True}, {"act": "relu"}, {"act": "gelu_erf"}, {"act": "relu2"}, {"act": "none"},
    {"gated": True}, {"constant_weights": True},
]  # fmt: skip
# (m, n, k): x [m, k] to y [m, n]; the hidden layer's width comes from dims().
SIZES = [(1, 1, 1), (7, 9, 63), (65, 257, 9), (129, 65, 129), (1, 256, 256), (2, 64, 512), (16, 128, 128), (33, 72, 64),
         (64, 128, 64), (128, 128, 128), (129, 264, 136), (200, 144, 144), (300, 256, 64), (730, 144, 72)]  # fmt: skip
SHAPES = {
    "smoke": [SIZES[i] for i in (0, 1, 4, 8, 10)],
    "ci": SIZES,
    "full": [*SIZES, (729, 1152, 1152), (1, 2048, 1024), (17, 1024, 2048), (512, 512, 512), (2000, 136, 264)],
}
WIDTHS = (136, 64, 9, 264, 1000, 33, 512)


def reference(t, a):
    lean = a.T != "f32"
    z = product(t.x, t.w1, plus=[t.b1])
    h = rounded(gate(z, a.act, lean) if a.gated else activate(z, a.act, lean), a.T)
    y = product(h.value, t.w2, plus=[t.b2, t.residual], a_error=(h.error, h.tf32))
    return {"y": Expected(y.value, error=y.error, tf32=y.tf32)}


def dims(m, n, k, a, i):
    width = WIDTHS[i % len(WIDTHS)]
    return {"m": m, "n": n, "k": k, "width": 2 * width if a.gated else width}


def inputs(rng, t, a):
    """Weights as layers have them: the hidden layer is about as large as x, and a gate's product still an f16."""
    t["w1"] /= max(a.k, 1) ** 0.5 * max(np.abs(t["w1"]).max(initial=0) / 4, 1)
    t["w2"] /= max(a.inner, 1) ** 0.5


SPEC = MatrixSpec(
    "mlp", reference, variants=VARIANTS, matrix_dims=dims, inputs=inputs, shapes=SHAPES,
    layouts=[("w1", "w2"), (), ("x",), ("w1",), ("x", "w2")],
    empties=[{"k": 0}, {"m": 0}, {"n": 0}, {"width": 0}], large={"n": 2048, "k": 16, "width": 64},
)  # fmt: skip


def test_mlp(plan):
    plan.check()
