# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, MatrixSpec
from harness.matrix import PROBES, SHAPES, activate, gate, product

SHARDS = 4  # processes of tools/gpu-check

VARIANTS = [
    {"act": "gelu_tanh"}, {"act": "silu", "gated": True}, {"act": "silu"}, {"act": "gelu_erf", "out_scale": 0.5},
    {"act": "relu", "constant_b": True}, {"act": "relu2", "out_scale": -2.0}, {"gated": True, "act": "gelu_tanh"},
    {"gated": True, "out_scale": 3.0}, {"gated": True, "act": "gelu_erf"}, {"gated": True, "act": "relu"},
    {"gated": True, "act": "relu2"}, {"out_scale": -0.5},
]  # fmt: skip


def reference(t, a):
    lean = a.T != "f32"
    z = product(t.a, t.b, plus=[t.bias])
    y = gate(z, a.act, lean) if a.gated else activate(z, a.act, lean)
    residual = 0.0 if t.residual is None else t.residual
    value, scale = residual + a.out_scale * y.value, abs(a.out_scale)
    # Two roundings more, of the scaled value and of the sum.
    own = 2.0**-23 * (np.abs(residual) + scale * np.abs(y.value))
    y = y.map(value, lambda e: scale * e + own)
    return {"y": Expected(y.value, error=y.error, tf32=y.tf32)}


def dims(m, n, k, a, i):
    return {"m": m, "n": n + n % 2 if a.gated else n, "k": k}


SPEC = MatrixSpec(
    "gemm_epilogue", reference, variants=VARIANTS, matrix_dims=dims, layouts=[("b",), (), ("a",), ("a", "b")],
    shapes={"smoke": SHAPES["smoke"], "ci": SHAPES["ci"][::2], "full": SHAPES["full"][::2]},
    tiles=[{"gated": True, "act": "silu", "constant_b": True}, {"act": "gelu_tanh"}], boxes=True,
    empties=[{"k": 0}, {"m": 0}, {"n": 0}], large=[{"n": 4096, "k": 16}, {"n": 16, "k": 4096}], probes=PROBES,
    # f32, for TF32; nothing fused, for a library
    more_large=[
        {"dims": {"n": 4096, "k": 16}, "dtypes": (("T", "f32"), ("D", "f32"))},
        {"dims": {"n": 4096, "k": 16}, "presence": ()},
    ],
)  # fmt: skip


def test_gemm_epilogue(plan):
    plan.check()
