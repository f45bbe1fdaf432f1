# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 elements in a tensor, and so more than 2^32 bytes: offsets that are 32 bits somewhere come out here."""

import dataclasses
import itertools

import einkorn
import numpy as np
import pytest
from einkorn import _native
from harness import AUTO, Prepared, decode, encode, rows
from harness.case import Case
from harness.dtypes import ITEMSIZE, STORAGE

SHARDS = 2  # processes of tools/gpu-check; each holds up to 30 GB on the GPU

LIMIT = 2**31
PERIOD = 127  # rows of distinct data, repeated: prime, so that a wrapped offset meets other data
CHECKED = 16  # rows read back at each place that is looked at
BF16 = (("T", "bf16"), ("D", "bf16"))
# Rows that no case is for, and why.
EXCEPT = {"mlp_sm80_tf32": "its two products are those of gemm_epilogue_sm80_tf32, by the same kernels"}


def test_beyond_2_31_elements(spec, cuda, level):
    if level != "full":
        pytest.skip("level full only")
    took = set()
    if spec.schema.batch or spec.op in ("rms_norm_backward", "layer_norm_backward"):
        # Then other layouts, dtypes and sizes, where those have kernels or offsets of their own.
        for one in [*({"dims": dims} for dims in spec.large), *spec.more_large]:
            took |= check_large(spec, cuda, large_case(spec, **one))
    for check in CHECKS.get(spec.op, ()):
        took |= check(spec, cuda)
    missed = {k.name for k in rows.usable(spec.op, cuda)} - took - {*EXCEPT}
    missed = sorted(row for row in missed if not rows.lacks_library(row))
    assert not missed, "; ".join(f"{row} takes no case: {', '.join(rows.refusals(row))}" for row in missed)


def large_case(spec, dims, dtypes=None, variant=None, presence=None, columns=()):
    """PERIOD rows of what is to be repeated. dims: in place of those of a case of size 4096. columns: matrices that are
    stored by columns."""
    usual = next(c for c in spec.combos() if dict(c).get("T", dict(c).get("S")) in ("bf16", "f16"))
    strides = f"columns:{','.join(columns)}" if columns else "dense"
    case = spec.case(dtypes or usual, 4096, 0, (PERIOD,), variant or {}, presence, strides=strides)
    # Sums over all rows have no reference of a few rows: only what belongs to a row is asked for.
    keep = tuple(
        t.name for t in spec.schema.tensors if t.name in case.present and (spec.has_batch(t) or t.role == "in")
    )
    dims = tuple({**dict(case.dims), **dims}.items())
    return spec.with_batch(dataclasses.replace(case, present=keep, dims=dims), PERIOD)


def check_large(spec, cuda, case):
    """The rows that took the case, its batch repeated until its largest tensor has more than 2^31 elements."""
    part = Prepared(spec, case)
    largest = max(int(np.prod(part.shapes[n])) for n in part.tensors)
    count = (LIMIT // (largest // PERIOD) + 2 * PERIOD) // PERIOD  # repetitions of the period
    context, took = einkorn.Context(cuda), set()
    whole = {name: Grown(part, name, count, context, cuda) for name in part.tensors}
    usual = part.results(part.run(cuda, AUTO))

    def fill():
        for t in whole.values():
            t.fill()

    arguments = {n: t.array for n, t in whole.items()} | dict(case.attrs)
    for row, ran in each_row(spec.op, cuda, fill, arguments):
        took.add(ran)
        # With TF32 a sum may be further from another row's than what close() allows.
        expected = part.results(part.run(cuda, row)) if rows.needs_tf32(spec.op, row) else usual
        for name in part.outputs:
            last, limit = count * PERIOD - CHECKED, LIMIT // whole[name].row_elements
            for first in (0, last // 2, max(min(limit - CHECKED // 2, last), 0), last):
                got = whole[name].read(first, CHECKED)
                want = expected[name][0][np.arange(first, first + CHECKED) % PERIOD]
                close(row, name, got, want, part.dtypes[name], first)
    return took


def each_row(op, cuda, fill, arguments, names=None):
    """Calls the op with every row, and as selected, each time after fill(): (what was asked for, what ran) of each call that
    was taken, and has ended."""
    contexts = [einkorn.Context(cuda), einkorn.Context(cuda, flags=("tf32",))]
    for row in [*(k.name for k in rows.usable(op, cuda)), AUTO] if names is None else names:
        fill()
        einkorn.context(cuda).synchronize()  # whose stream the fills are on
        context = contexts[rows.needs_tf32(op, row)]
        context.force(op, None if row == AUTO else row)
        try:
            getattr(einkorn, op)(**arguments, ctx=context)
        except einkorn.Error as e:
            assert e.status == "unsupported" and row != AUTO, e
            rows.refused(row, str(e).partition("refuses: ")[2])
            continue
        finally:
            context.force(op, None)
        context.synchronize()
        rows.ran(context.last_kernel())
        yield row, context.last_kernel()


# ---- what a batch that grows does not reach -----------------------------------------------------------------------------


def few_rows(spec, cuda):
    """Few rows of a and a b, stored by columns as weights are, of more than 2^31 elements."""
    k, count = 4096, (LIMIT // (4096 * PERIOD) // 8 + 2) * 8  # n a multiple of 8, as tiled rows ask
    n, context, took = count * PERIOD, einkorn.Context(cuda), set()
    fused = tuple(t.name for t in spec.schema.tensors if t.name in ("bias", "residual"))
    for m in (4,) if fused else (1, 4, 40):
        dims = (("m", m), ("n", PERIOD), ("k", k))
        part = Prepared(spec, Case(spec.op, BF16, dims=dims, present=fused, strides="columns:b"))
        (name,) = part.outputs
        want = np.tile(part.results(part.run(cuda, AUTO))[name][0], count)
        weights = einkorn.empty((n, k), "bf16", cuda)
        repeat(context, weights.pointer, np.ascontiguousarray(part.inputs["b"].T), count)
        arguments = {"b": weights.view((k, n), (1, k)), name: einkorn.empty((m, n), "bf16", cuda)}
        for other in ("a", *fused):
            raw = np.ascontiguousarray(part.inputs[other])
            raw = raw if other == "a" else np.tile(raw, count)
            arguments[other] = einkorn.empty(raw.shape, "bf16", cuda)
            repeat(context, arguments[other].pointer, raw, 1)
        out = arguments[name]
        for row, ran in each_row(spec.op, cuda, lambda out=out: out.fill_bytes(0xFF), arguments):
            took.add(ran)
            close(row, name, piece(context, out.pointer, m * n).reshape(m, n), want, "bf16", 0)
    return took


def long_k(spec, cuda):
    """a and b of few tiles and so long a k that each has more than 2^31 elements, for rows that cut k. A column of b is 0 but
    for a 1 at some place of k: a column of d is that one of a, bit for bit."""
    side, batch = 72, 2 if spec.op == "gemm_batched" else 1
    k = (LIMIT // (batch * side) // 8 + 2) * 8  # lines begin on 16 bytes
    context, rng, lead = einkorn.Context(cuda), np.random.default_rng(0), (batch,) if batch > 1 else ()
    data = encode(rng.standard_normal(1000003), "bf16")  # prime, as PERIOD
    count = batch * side * k // data.size + 1
    a, b = einkorn.empty((count * data.size,), "bf16", cuda), einkorn.empty((batch * side * k,), "bf16", cuda)
    b.fill_bytes(0)
    einkorn.context(cuda).synchronize()
    repeat(context, a.pointer, data, count)
    places = rng.integers(0, k, batch * side)
    places[:2], places[-1] = (0, k // 2), k - 1
    for column, at in enumerate(places):
        repeat(context, b.pointer + 2 * (column * k + int(at)), encode(np.ones(1), "bf16"), 1)
    lines = np.arange(batch * side).reshape(batch, side, 1) * k
    want = data[(lines + places.reshape(batch, 1, side)) % data.size]
    name = next(t.name for t in spec.schema.tensors if t.role != "in")
    out = einkorn.empty((*lead, side, side), "bf16", cuda)
    step = (side * k,) * len(lead)
    a, b = a.view((*lead, side, k), (*step, k, 1)), b.view((*lead, k, side), (*step, 1, k))
    cut, took = [r.name for r in rows.usable(spec.op, cuda) if r.name.endswith("_sm90_split")], set()
    for row, ran in each_row(spec.op, cuda, lambda: out.fill_bytes(0xFF), {"a": a, "b": b, name: out}, cut):
        took.add(ran)
        got = piece(context, out.pointer, want.size).reshape(want.shape)
        assert np.array_equal(got, want), f"{row}: {int((got != want).sum())} of {want.size} are wrong"
    return took


def far_pages(spec, cuda):
    """A few sequences in the last pages of a cache of more than 2^31 elements: the rows for little work too."""
    case = spec.case((("T", "f16"), ("K", "f16")), 64, 0, (8,), {})
    part, context, took = Prepared(spec, case), einkorn.Context(cuda), set()
    expected, arguments = part.results(part.run(cuda, AUTO)), dict(case.attrs)
    pages, *page = part.shapes["k"]
    assert part.shapes["v"] == part.shapes["k"]
    before = LIMIT // int(np.prod(page)) + 1
    for name in part.tensors:
        raw, shape, first = part.inputs.get(name), part.shapes[name], 0
        if name in ("k", "v"):
            shape, first = (before + pages, *page), before * int(np.prod(page)) * 2
        array = arguments[name] = einkorn.empty(shape, part.dtypes[name], cuda).fill_bytes(0xFF)
        einkorn.context(cuda).synchronize()
        if raw is not None:
            raw = np.where(raw < pages, raw + before, raw) if name == "page_table" else np.ascontiguousarray(raw)
            repeat(context, array.pointer + first, raw, 1)

    def fill():
        for name in part.outputs:
            arguments[name].fill_bytes(0xFF)

    for row, ran in each_row(spec.op, cuda, fill, arguments):
        took.add(ran)
        for name in part.outputs:
            got = np.empty(part.shapes[name], STORAGE[part.dtypes[name]])
            copy_out(context, got, arguments[name].pointer)
            close(row, name, got, expected[name][0], part.dtypes[name], 0)
    return took


def many_lines(spec, cuda):
    """gemm_pack_gated with so many rows that b has more than 2^31 elements."""
    few, period = 64, 8 * PERIOD
    count, context, took = LIMIT // (2 * few * period) + 2, einkorn.Context(cuda), set()
    data = np.random.default_rng(0).integers(0, 1 << 16, (2, period, few), np.uint16)  # only moved: any bits will do
    arguments = {n: einkorn.empty((count * period, few), "f16", cuda) for n in ("gate", "up")}
    for array, raw in zip(arguments.values(), data, strict=True):
        repeat(context, array.pointer, raw, count)
    b = arguments["b"] = einkorn.empty((count * period, 2 * few), "f16", cuda)
    packed, last = data.transpose(1, 2, 0).reshape(period, 2 * few), count * period - CHECKED
    for row, ran in each_row(spec.op, cuda, lambda: b.fill_bytes(0xFF), arguments):
        took.add(ran)
        for first in (0, last // 2, last):
            got = piece(context, b.pointer + 4 * first * few, CHECKED * 2 * few).reshape(CHECKED, 2 * few)
            want = packed[np.arange(first, first + CHECKED) % period]
            assert np.array_equal(got, want), f"{row}: b is wrong from row {first} on"
    return took


def narrow(spec, cuda):
    """Rows of one element and of eight: more than 2^31 rows, and so more than a launch numbers."""
    return check_large(spec, cuda, large_case(spec, {"dim": 1})) | check_large(spec, cuda, large_case(spec, {"dim": 8}))


def sums_over_rows(spec, cuda):
    """dweight and dbias of more than 2^31 elements: dy is 0 but for a few rows, far apart, that have data of their own."""
    took, context = set(), einkorn.Context(cuda)
    usual = next(c for c in spec.combos() if dict(c)["T"] == "bf16")
    for dim, presence in itertools.product((4096, 128, 8), (0, -1)):
        tensors = [c for c in spec.presences({}, {"dim": dim}) if "dweight" in c and "weight" in c][presence]
        case = spec.case(usual, dim, 0, (PERIOD,), {}, tensors)
        drawn = Prepared(spec, case)
        count = LIMIT // (dim * PERIOD) + 3  # what begins near the limit, or up to a period later, is inside
        last, dy = count * PERIOD - CHECKED, np.zeros_like(drawn.inputs["dy"])
        places = {}  # where each run of rows begins: (in the large tensors, in the small ones)
        for i, at in enumerate((0, last // 2, LIMIT // dim, last - PERIOD)):
            small = 2 * CHECKED * i
            places[at + (small - at) % PERIOD] = small
            dy[small : small + CHECKED] = drawn.inputs["dy"][small : small + CHECKED]
        part = Prepared(spec, case, {**drawn.inputs, "dy": dy})
        expected = part.results(part.run(cuda, AUTO))
        whole = {name: Grown(part, name, count, context, cuda) for name in part.tensors}

        def fill(whole=whole, places=places, dy=dy):
            for name, t in whole.items():
                if name != "dy":
                    t.fill()
            large = whole["dy"].array.fill_bytes(0)
            einkorn.context(cuda).synchronize()
            for first, small in places.items():
                repeat(context, large.pointer + first * whole["dy"].row_bytes, dy[small : small + CHECKED], 1)

        arguments = {n: t.array for n, t in whole.items()} | dict(case.attrs)
        for row, ran in each_row(spec.op, cuda, fill, arguments):
            took.add(ran)
            for name in ("dweight", "dbias"):
                if name in whole:
                    got = np.empty(dim, np.uint16)
                    copy_out(context, got, whole[name].array.pointer)
                    close(f"{row}, dim {dim}", name, got, expected[name][0], "bf16", 0)
    return took


# Beside the cases of the specs. Each gives the rows that took it.
CHECKS = {
    "rms_norm": [narrow],
    "add_rms_norm": [narrow],
    "rms_norm_gated": [narrow],
    "layer_norm": [narrow],
    "add_layer_norm": [narrow],
    "l2_norm": [narrow],
    "rms_norm_quant": [narrow],
    "add_rms_norm_quant": [narrow],
    "rms_norm_backward": [narrow, sums_over_rows],
    "layer_norm_backward": [narrow, sums_over_rows],
    "gemm": [few_rows, long_k],
    "gemm_epilogue": [few_rows, long_k],
    "gemm_batched": [long_k],
    "attention_decode": [far_pages],
    "gemm_pack_gated": [many_lines],
}


def test_exceptions_are_rows():
    """EXCEPT names no row that is gone."""
    known = {k.name for op in einkorn.schema.OPS for k in einkorn.kernels(op) if k.device == "cuda"}
    if not known:
        pytest.skip("a build without CUDA")
    assert not {*EXCEPT} - known


def test_a_matrix_beyond_2_31_elements(cuda, level):
    """transpose_2d of one matrix, tall or wide: offsets inside of it, not from one to the next."""
    if level != "full":
        pytest.skip("level full only")
    few, period = 64, 8 * PERIOD
    count = LIMIT // (few * period) + 2
    many, context = count * period, einkorn.Context(cuda)
    data = np.random.default_rng(0).integers(0, 1 << 16, (period, few), np.uint16)  # only moved: any bits will do
    for tall in (True, False):
        x = einkorn.empty((many, few) if tall else (few, many), "bf16", cuda)
        y = einkorn.empty((few, many) if tall else (many, few), "bf16", cuda)
        if tall:
            repeat(context, x.pointer, data, count)
        else:
            for r in range(few):
                repeat(context, x.pointer + r * many * 2, np.ascontiguousarray(data[:, r]), count)
        for row, _ in each_row("transpose_2d", cuda, lambda y=y: y.fill_bytes(0xFF), {"x": x, "y": y}):
            last = many - CHECKED
            for first in (0, last // 2, last):
                want = data[np.arange(first, first + CHECKED) % period]
                if tall:  # a piece of each row of y
                    got = np.stack([piece(context, y.pointer + 2 * (r * many + first), CHECKED) for r in range(few)], 1)
                else:
                    got = piece(context, y.pointer + 2 * first * few, CHECKED * few).reshape(CHECKED, few)
                assert np.array_equal(got, want), f"{row}: y is wrong from {first} on, {x.shape}"


def test_columns_beyond_2_32(cuda, level):
    """gemm of one row with 2^32 columns, all of them the same one of b: counts of blocks and columns that are 32 bits."""
    if level != "full":
        pytest.skip("level full only")
    n, k, context, took = 2**32, 8, einkorn.Context(cuda), set()
    a = einkorn.from_numpy(np.arange(1, k + 1, dtype=np.float16)[None], cuda)
    b = einkorn.from_numpy(np.full((k, 1), 0.5, np.float16), cuda).view((k, n), (1, 0))
    d = einkorn.empty((1, n), "f16", cuda)
    for row, ran in each_row("gemm", cuda, lambda: d.fill_bytes(0xFF), {"a": a, "b": b, "d": d}):
        took.add(ran)
        got = np.empty(4096, np.float16)
        for first in [*range(0, n, n // 64), n - got.size]:
            copy_out(context, got, d.pointer + 2 * first)
            assert (got == 18).all(), f"{row}: wrong from column {first}"
    assert {"gemm_sm80_skinny", "gemm_gemv", "gemm_cuda"} <= took


# ---- memory -------------------------------------------------------------------------------------------------------------


def copy_out(context, raw, pointer):
    """What begins at `pointer`, into raw."""
    _native.memory_copy(context._native, raw.__array_interface__["data"][0], pointer, raw.nbytes)
    context.synchronize()


def piece(context, pointer, n):
    """n elements of 16 bits from `pointer` on."""
    raw = np.empty(n, np.uint16)
    copy_out(context, raw, pointer)
    return raw


def repeat(context, pointer, raw, count):
    """raw, `count` times one after the other, from `pointer` on."""
    copy = _native.memory_copy
    copy(context._native, pointer, raw.__array_interface__["data"][0], raw.nbytes)
    context.synchronize()
    done = 1
    while done < count:  # doubles what is there
        more = min(done, count - done)
        copy(context._native, pointer + done * raw.nbytes, pointer, more * raw.nbytes)
        done += more
    context.synchronize()


def close(row, name, got, want, dtype, first):
    """The small run's values, which the other tests check, nearly: another row may round, and add up, otherwise. An offset
    that does not fit would bring another row's values, which differ by far more than this allows."""
    a, b = decode(got, dtype), decode(want, dtype)
    step = {"i8": 1.01, "e4m3": 0.13 * np.abs(b) + 2.0**-9}.get(dtype, np.abs(b) * 2.0**-6 + 1e-3)
    with np.errstate(invalid="ignore"):
        good = (got == want) | (np.abs(a - b) <= step)
    assert good.all(), f"{row}: {name} is wrong from row {first}"


class Grown:
    """A tensor of a prepared case, its batch repeated `count` times on the device."""

    def __init__(self, part, name, count, context, device):
        self.part, self.name, self.context = part, name, context
        self.grows = part.spec.has_batch(part.tensors[name])
        self.columns = name in part.case.strides.removeprefix("columns:").split(",")
        self.count = count if self.grows else 1
        shape, self.dtype = part.shapes[name], part.dtypes[name]
        self.row_elements = int(np.prod(shape[1:])) if self.grows else int(np.prod(shape))
        self.row_bytes = self.row_elements * ITEMSIZE[self.dtype]
        shape = (shape[0] * count, *shape[1:]) if self.grows else shape
        self.array = einkorn.empty(turned(shape) if self.columns else shape, self.dtype, device)
        if self.columns:
            self.array = self.array.view(shape, turned(self.array.strides))

    def fill(self):
        if self.name not in self.part.inputs:
            self.array.fill_bytes(0xFF)
            return
        raw, count = self.part.inputs[self.name], self.count
        raw = np.ascontiguousarray(raw.swapaxes(-1, -2) if self.columns else raw)
        if self.name == "page_table":  # every repetition has pages of its own, far from the first ones
            pages = self.part.shapes["k"][0]
            raw, count = np.concatenate([np.where(raw < pages, raw + i * pages, raw) for i in range(count)]), 1
        repeat(self.context, self.array.pointer, raw, count)

    def read(self, first, n):
        raw = np.empty((n, *self.part.shapes[self.name][1:]), STORAGE[self.dtype])
        copy_out(self.context, raw, self.array.pointer + first * self.row_bytes)
        return raw


def turned(sizes):
    """The last two the other way round."""
    return (*sizes[:-2], sizes[-1], sizes[-2])
