# SPDX-License-Identifier: Apache-2.0
import importlib.util
from pathlib import Path

from harness import MatrixSpec
from harness.matrix import PROBES, SHAPES

SHARDS = 4  # processes of tools/gpu-check

# A product of a batch is that of gemm: its reference serves for both.
_spec = importlib.util.spec_from_file_location("test_gemm", Path(__file__).with_name("test_gemm.py"))
gemm = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gemm)

BATCHES = (3, 1, 2, 5)


def dims(m, n, k, a, i):
    batch = BATCHES[i % 4] if m * n * k < 1e6 else 2
    return {"batch": 17 if i % 11 == 5 and m * n * k < 1e5 else batch, "m": m, "n": n, "k": k}


SPEC = MatrixSpec(
    "gemm_batched", gemm.reference, variants=gemm.VARIANTS, matrix_dims=dims, layouts=gemm.LAYOUTS, inputs=gemm.inputs,
    shapes={"smoke": SHAPES["smoke"], "ci": SHAPES["ci"][::3] + [(512, 512, 512)], "full": SHAPES["full"][::2]},
    empties=[{"k": 0}, {"m": 0}, {"batch": 0}], batch=1, large={"m": 64, "n": 64, "k": 16}, probes=PROBES,
)  # fmt: skip


def test_gemm_batched(plan):
    plan.check()
