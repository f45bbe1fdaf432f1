# SPDX-License-Identifier: Apache-2.0
import importlib.util
from pathlib import Path

import einkorn
import numpy as np
import pytest
from harness import MatrixSpec, Prepared, Refused, rows
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
    empties=[{"k": 0}, {"m": 0}, {"batch": 0}], batch=1, shared=("a", "b", "c"), probes=PROBES,
    large=[{"m": 64, "n": 64, "k": 16}, {"m": 64, "n": 16, "k": 256}],
    # Few rows of a, with b by rows and by columns; f32 with c, for TF32
    more_large=[
        {"dims": {"m": 4, "n": 64, "k": 64}}, {"dims": {"m": 4, "n": 64, "k": 64}, "columns": ("b",)},
        {"dims": {"m": 64, "n": 64, "k": 16}, "variant": {"alpha": 2.0, "beta": 3.0}, "dtypes": gemm.F32},
    ],
)  # fmt: skip


def test_gemm_batched(plan):
    plan.check()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("m, k", [(5, 2056), (40, 4160), (5, 17088)])
def test_few_rows_and_a_long_k(device, shared, m, k):
    """Weights as linear layers have them, one for each product or one for all: rows that have other blocks for a long k, or much of b."""
    rng = np.random.default_rng(7)
    context, batch, n = einkorn.Context(device), 3, 264
    a, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((batch, m, k), (1 if shared else batch, n, k)))
    exact = lambda x, y: x.astype(float) @ y.astype(float).swapaxes(1, 2)  # noqa: E731
    want = exact(a, w)
    bound = 2.0**-11 * np.abs(want) + 2.0**-24 * k * exact(np.abs(a), np.abs(w))  # of f16, of sums in f32
    took, usable = [], [r.name for r in rows.usable("gemm_batched", device)]
    for row in usable:
        context.force("gemm_batched", row)
        try:
            if device == "cpu":
                d = einkorn.gemm_batched(
                    a, np.broadcast_to(w, (batch, n, k)).swapaxes(1, 2), constant_b=k % 64 == 0, ctx=context
                )
            else:
                b = einkorn.from_numpy(w, device).view((batch, k, n), (0 if shared else n * k, 1, k))
                d = einkorn.from_numpy(np.full((batch, m, n), np.nan, np.float16), device)
                einkorn.gemm_batched(einkorn.from_numpy(a, device), b, d=d, constant_b=k % 64 == 0, ctx=context)
                context.synchronize()
                d = d.numpy()
        except einkorn.Error as e:
            assert e.status == "unsupported", e
            continue
        took.append(row)
        wrong = np.abs(d - want) > bound
        assert not wrong.any() and not np.isnan(d).any(), f"{row}: {wrong.sum()} of {wrong.size} are wrong"
    assert took
    narrow = "gemm_batched_sm90_narrow"
    assert narrow in took or k % 64 or narrow not in usable


def test_batch_invariant_over_m(device, level):
    """Also in a batch of products: a row of d has the same bits whatever m is."""
    if level == "smoke":
        pytest.skip("too large for a sanitizer")
    context = einkorn.Context(device, flags=("batch_invariant", "tf32"))
    n, k, most = 264, 520, 300 if device == "cpu" else 700
    for dtypes in SPEC.combos():
        case_of = lambda m, d=dtypes: SPEC.with_batch(  # noqa: E731
            SPEC.case(d, (m, n, k), 0, (), {"beta": 1.0}, strides="columns:b", seed=0), 3
        )
        full = Prepared(SPEC, case_of(most))
        for row in (r.name for r in rows.usable("gemm_batched", device) if r.batch_invariant):
            try:
                whole = full.results(full.run(device, row, context))["d"][0]
            except Refused:
                continue
            for m in (1, 2, 17, 64, 65, 129, 257):
                inputs = {name: x if name == "b" else x[:, :m] for name, x in full.inputs.items()}
                part = Prepared(SPEC, case_of(m), inputs)
                got = part.results(part.run(device, row, context))["d"][0]
                assert got.tobytes() == np.ascontiguousarray(whole[:, :m]).tobytes(), f"{row}: {m} rows of {most}"
