# SPDX-License-Identifier: Apache-2.0
import itertools

import einkorn
import numpy as np
import pytest
from harness import AUTO, Expected, MatrixSpec, Prepared, Refused, all_specs, check_case, decode, rows
from harness.matrix import PROBES, TILES, WAVES, product
from harness.memory import Arena

SHARDS = 6  # processes of tools/gpu-check
REPEAT_PARTS, REPEAT_BYTES = 6, 64 << 20

# alpha, beta; b by columns ("nt") is how weights are stored.
VARIANTS = [
    {"alpha": 1.0, "beta": 1.0}, {"constant_b": True}, {"alpha": 2.0, "beta": 3.0}, {"alpha": 0.5, "beta": 2.0},
    {"alpha": 0.0, "beta": 1.0}, {"alpha": -1.5, "beta": 0.0},
]  # fmt: skip
F32 = (("T", "f32"), ("D", "f32"))
LAYOUTS = [("b",), (), ("a",), ("a", "b"), ("c", "d"), ("b", "d"), ("a", "c", "d"), ("c",), ("a", "b", "c", "d")]


def reference(t, a):
    c = None if a.beta == 0 else a.beta * t.c  # beta = 0 never reads c
    d = product(t.a, t.b, a.alpha, plus=[c])
    return {"d": Expected(d.value, error=d.error, tf32=d.tf32)}


def inputs(rng, t, a):
    if a.beta == 0 and t["c"] is not None:
        t["c"][...] = np.nan
    if a.alpha == 0:  # whether a NaN of a or b then counts is not said
        t["a"], t["b"] = np.nan_to_num(t["a"], posinf=1, neginf=1), np.nan_to_num(t["b"], posinf=1, neginf=1)


def dims(m, n, k, a, i):
    return {"m": m, "n": n, "k": k}


SPEC = MatrixSpec(
    "gemm", reference, variants=VARIANTS, matrix_dims=dims, layouts=LAYOUTS, inputs=inputs,
    tiles=[{"constant_b": True}, {"alpha": 2.0, "beta": 3.0}, {}],
    empties=[{"k": 0}, {"m": 0}, {"n": 0}], large=[{"n": 4096, "k": 16}, {"n": 16, "k": 4096}], probes=PROBES,
    # c; f32, for TF32, as a large result and as a large a
    more_large=[
        {"dims": {"n": 4096, "k": 16}, "variant": {"alpha": 2.0, "beta": 3.0}},
        {"dims": {"n": 4096, "k": 16}, "variant": {"alpha": 2.0, "beta": 3.0}, "dtypes": F32},
        {"dims": {"n": 16, "k": 4096}, "dtypes": F32},
    ],
)  # fmt: skip


def test_gemm(plan):
    plan.check()


def test_alpha_and_beta_of_0(device):
    """d is 0, by every row that does not leave that to another, whatever c holds: it is all NaN."""
    names = [AUTO, *(k.name for k in rows.usable("gemm", device))]
    for dtypes, size in itertools.product(SPEC.combos(), [(4, 520, 4096), (40, 520, 4096), (257, 264, 72)]):
        prepared = Prepared(SPEC, SPEC.case(dtypes, size, 0, (), {"alpha": 0.0, "beta": 0.0}, strides="columns:b"))
        assert np.isnan(decode(prepared.inputs["c"], prepared.dtypes["c"])).all()
        assert not prepared.expected()["d"].value.any()
        took = [row for row in names if check_case(prepared, device, row)]
        assert AUTO in took and len(took) > 1


def repeat(prepared, device, row, context, calls):
    """Whether the row takes the case, and then: that each of so many calls writes its result with the same bits."""
    arena, op = Arena.at_least(device, prepared.nbytes), prepared.spec.op
    try:
        first = prepared.run(device, row, context)
    except Refused:
        return False
    (name,) = prepared.outputs
    placed = prepared.placed[name]
    poison, first = (block[placed.start : placed.end] for block in (prepared.block, first))
    context.force(op, row)
    for i in range(calls):
        arena.upload(poison, placed.start)  # or a call that wrote nothing would pass
        prepared.call(arena, context)
        again = arena.download(first.size, placed.start)
        assert np.array_equal(again, first), f"{row}: call {i} differs, {prepared.case}"
    context.force(op, None)
    return True


@pytest.mark.parametrize("name", ["gemm", "gemm_batched", "gemm_epilogue", "mlp"])
def test_1000_repeats(name, device, level):
    """A promise to be deterministic, for 1000 calls: of gemm in all dtypes, of ops with the same kernels in the first ones that
    a row takes, with all that can be fused or with nothing."""
    if level != "full":
        pytest.skip("level full only")
    spec, context = all_specs()[name], einkorn.Context(device, flags=("deterministic", "tf32"))
    promised = [k.name for k in rows.usable(name, device) if k.deterministic]
    strides, done = "columns:" + ",".join(spec.layouts[0]), set()
    sizes = [(4, 520, 4096), (40, 520, 4096), (72, 72, 5128), (257, 264, 1000)]
    for combo, presence, size in itertools.product(spec.combos(), (None,) if name == "gemm" else (None, ()), sizes):
        waiting = [row for row in promised if name == "gemm" or (row, size) not in done]
        prepared = Prepared(spec, spec.case(combo, size, 0, (), {}, presence, strides=strides)) if waiting else None
        done |= {(row, size) for row in waiting if repeat(prepared, device, row, context, 1000)}
    ran = {row for row, _ in done}
    assert not [row for row in promised if row not in ran and not rows.lacks_library(row)]


@pytest.mark.parametrize("part", range(REPEAT_PARTS))
def test_repeats_of_every_tile(cuda, level, part):
    """The same for each kernel of the rows that have one for each kind of tile: 1000 calls where d is small, else 30."""
    if level != "full":
        pytest.skip("level full only")
    context = einkorn.Context(cuda, flags=("deterministic",))
    promised = [k.name for k in rows.usable("gemm", cuda) if k.deterministic and "sm90" in k.name]
    dtypes, inputs = (("T", "bf16"), ("D", "bf16")), None
    for size in [*TILES, *WAVES][part::REPEAT_PARTS]:
        for variant in ({"alpha": 2.0, "beta": 3.0}, {"constant_b": True}):
            case = SPEC.case(dtypes, size, 0, (), variant, strides="columns:b", seed=0)
            prepared = Prepared(SPEC, case, inputs)
            inputs = prepared.inputs if inputs is None else None  # the second variant's are the first's
            calls = min(max(REPEAT_BYTES // prepared.placed["d"].nbytes, 30), 1000)
            took = [repeat(prepared, cuda, row, context, calls) for row in promised]
            assert any(took) or not promised


@pytest.mark.parametrize("size", [(0, 8, 16), (8, 0, 16), (0, 0, 0), (200, 0, 64), (0, 128, 64)])
def test_explain_of_nothing(device, size):
    """What would run for an empty product can be asked too: plans must not divide by its tiles."""
    prepared = Prepared(SPEC, SPEC.case((("T", "bf16"), ("D", "bf16")), size, 1, strides="columns:b"))
    arena = Arena.at_least(device, prepared.nbytes)
    assert "-> gemm_" in einkorn.Context(device).explain("gemm", **prepared.arguments(arena))


@pytest.mark.parametrize("m, n, k", [(1, 2**31, 8), (16, 2**32, 8), (1, 2**33, 8192), (1, 2**40, 8), (2**20, 2**32, 8),
                                     (2**40, 1, 8), (8, 8, 2**32), (2**24, 2**28, 8)])  # fmt: skip
def test_explain_of_too_much(device, m, n, k):
    """Sizes past every count of 32 bits: rows refuse them with a reason, and one of them takes it. Nothing is computed."""
    memory = einkorn.empty((256,), "bf16", device)
    a, b = memory.view((m, k), (k, 1)), memory.view((k, n), (1, k))
    d = memory.view((m, n), (n, 1), 2 * max(m, n) * k)  # past a and b
    assert "-> gemm_" in einkorn.Context(device).explain("gemm", a=a, b=b, d=d)


def test_outputs_are_allocated_as_asked():
    """d is as a, as c where there is one, or as dtype says; views of NumPy arrays in any order will do."""
    a, w = np.ones((3, 8), np.float16), np.ones((5, 8), np.float16)
    assert einkorn.gemm(a, w.T).dtype == np.float16
    d = einkorn.gemm(a, w.T, dtype="f32")
    assert d.dtype == np.float32 and d.shape == (3, 5) and (d == 8).all()
    c = np.ones((3, 5), np.float32)
    assert (einkorn.gemm(a, w.T, c, beta=2.0) == 10).all()
    assert (einkorn.gemm(a.T.copy().T, w.T[:, ::2], alpha=0.5, d=c[:, :3]) == 4).all() and (c[:, 3:] == 1).all()
    h = einkorn.gemm_epilogue(a, w.T, act="relu", residual=c)
    assert h.dtype == np.float32


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_transposed_views(kind):
    torch = pytest.importorskip("torch") if kind == "torch" else None
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((7, 9), np.float32), rng.standard_normal((9, 5), np.float32)
    want = a @ b
    for ta, tb in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x, y = (np.ascontiguousarray(v.T).T if t else v for v, t in ((a, ta), (b, tb)))
        x, y = (torch.from_numpy(v) for v in (x, y)) if torch else (x, y)
        assert np.abs(np.asarray(einkorn.gemm(x, y)) - want).max() < 1e-5


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_batch_invariant_past_all_tiles(dtype, device, level):
    """The sizes of m at which the fastest tile is another one each time: a row of d has the same bits in all of them."""
    if not device.startswith("cuda") or level == "smoke":
        pytest.skip("kernels of CUDA, and products that are too large for a sanitizer")
    context = einkorn.Context(device, flags=("batch_invariant",))
    dtypes, n, k, most = (("T", dtype), ("D", dtype)), 1152, 1032, 2187
    for variant in ({"constant_b": True}, {"beta": 1.0}):
        case_of = lambda m, v=variant: SPEC.case(dtypes, (m, n, k), 0, (), v, strides="columns:b", seed=0)  # noqa: E731
        full = Prepared(SPEC, case_of(most))
        for row in (r.name for r in rows.usable("gemm", device) if r.batch_invariant):
            try:
                whole = full.results(full.run(device, row, context))["d"][0]
            except Refused:
                continue
            for m in (1, 17, 64, 129, 257, 513, 729, 1025, 1537):
                inputs = {name: x if name == "b" else x[:m] for name, x in full.inputs.items()}
                part = Prepared(SPEC, case_of(m), inputs)
                got = part.results(part.run(device, row, context))["d"][0]
                assert got.tobytes() == np.ascontiguousarray(whole[:m]).tobytes(), f"{row}: {m} rows of {most}"


def test_batch_invariant_with_one_row_of_c(device):
    """A bias as c, the same row for all: the rows of d still have the same bits whatever m is."""
    rng = np.random.default_rng(5)
    context, n, k, most = einkorn.Context(device, flags=("batch_invariant",)), 264, 520, 300
    a, w, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((most, k), (n, k), (1, n)))
    if device != "cpu":
        a, w, bias = (einkorn.from_numpy(x, device) for x in (a, w, bias))

    def run(m):
        if device == "cpu":
            return einkorn.gemm(a[:m], w.T, np.broadcast_to(bias, (m, n)), beta=1.0, ctx=context)
        d = einkorn.empty((m, n), "f16", device)
        c, b = bias.view((m, n), (0, 1)), w.view((k, n), (1, k))
        einkorn.gemm(a.view((m, k), (k, 1)), b, c, d=d, beta=1.0, ctx=context)
        context.synchronize()
        return d.numpy()

    whole = run(most)
    for m in (1, 2, 17, 64, 65, 129):
        assert run(m).tobytes() == np.ascontiguousarray(whole[:m]).tobytes(), f"{m} rows of {most}"
