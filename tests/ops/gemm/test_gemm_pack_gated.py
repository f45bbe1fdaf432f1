# SPDX-License-Identifier: Apache-2.0
import numpy as np
from harness import Expected, MatrixSpec
from harness.matrix import SHAPES


def reference(t, a):
    return {"b": Expected(np.stack([t.gate, t.up], -1).reshape(a.k, a.width), exact=True)}


def dims(m, n, k, a, i):
    return {"k": k, "n": n}


def shapes(level):
    return list(dict.fromkeys((1, n, k) for _, n, k in SHAPES[level] if n * k < 3e6))


SPEC = MatrixSpec(
    "gemm_pack_gated", reference, matrix_dims=dims, shapes={level: shapes(level) for level in SHAPES},
    layouts=[("gate", "up", "b"), (), ("gate", "up"), ("b",), ("gate",)], empties=[{"k": 0}, {"n": 0}],
)  # fmt: skip


def test_gemm_pack_gated(plan):
    plan.check()
