# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 elements in a tensor, and so more than 2^32 bytes: offsets that are 32 bits somewhere come out here."""

import dataclasses

import einkorn
import numpy as np
import pytest
from einkorn import _native
from harness import AUTO, Prepared, all_specs, decode, rows
from harness.case import Case
from harness.dtypes import ITEMSIZE, STORAGE

SHARDS = 2  # processes of tools/gpu-check; each holds up to 22 GB on the GPU

LIMIT = 2**31
PERIOD = 127  # rows of distinct data, repeated: prime, so that a wrapped offset meets other data
CHECKED = 16  # rows read back at each place that is looked at


def test_beyond_2_31_elements(spec, cuda, level):
    if level != "full":
        pytest.skip("level full only")
    if not spec.schema.batch and spec.op not in ("rms_norm_backward", "layer_norm_backward"):
        pytest.skip("no batch dimension to grow")
    took = set()
    # Then other layouts, dtypes and sizes, where those have kernels or offsets of their own: all rows, between them.
    for one in [*({"dims": dims} for dims in spec.large), *spec.more_large]:
        took |= check_large(spec, cuda, large_case(spec, **one))
    missed = {k.name for k in rows.usable(spec.op, cuda)} - took
    assert not spec.more_large or not missed, f"no case is for {', '.join(sorted(missed))}"


def large_case(spec, dims, dtypes=None, variant=None):
    """PERIOD rows of what is to be repeated. dims: in place of those of a case of size 4096."""
    usual = next(c for c in spec.combos() if dict(c).get("T", dict(c).get("S")) in ("bf16", "f16"))
    case = spec.case(dtypes or usual, 4096, 0, (PERIOD,), variant=variant or {})
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
    expected = part.results(part.run(cuda, AUTO))
    for row in [*(k.name for k in rows.usable(spec.op, cuda)), AUTO]:
        for t in whole.values():
            t.fill()
        einkorn.context(cuda).synchronize()  # whose stream the fills are on
        context.force(spec.op, None if row == AUTO else row)
        try:
            getattr(einkorn, spec.op)(**{n: t.array for n, t in whole.items()}, **dict(case.attrs), ctx=context)
        except einkorn.Error as e:
            assert e.status == "unsupported" and row != AUTO, e
            continue
        rows.ran(context.last_kernel())
        took.add(context.last_kernel())
        for name in part.outputs:
            last, limit = count * PERIOD - CHECKED, LIMIT // whole[name].row_elements
            for first in (0, last // 2, max(min(limit - CHECKED // 2, last), 0), last):
                got = whole[name].read(first, CHECKED)
                want = expected[name][0][np.arange(first, first + CHECKED) % PERIOD]
                close(spec, row, name, got, want, part.dtypes[name], first)
    return took


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
        for row in [*(k.name for k in rows.usable("transpose_2d", cuda)), AUTO]:
            y.fill_bytes(0xFF)
            einkorn.context(cuda).synchronize()
            context.force("transpose_2d", None if row == AUTO else row)
            try:
                einkorn.transpose_2d(x, y=y, ctx=context)
            except einkorn.Error as e:
                assert e.status == "unsupported" and row != AUTO, e
                continue
            last = many - CHECKED
            for first in (0, last // 2, last):
                want = data[np.arange(first, first + CHECKED) % period]
                if tall:  # a piece of each row of y
                    got = np.stack([piece(context, y.pointer + 2 * (r * many + first), CHECKED) for r in range(few)], 1)
                else:
                    got = piece(context, y.pointer + 2 * first * few, CHECKED * few).reshape(CHECKED, few)
                assert np.array_equal(got, want), f"{row}: y is wrong from {first} on, {x.shape}"
        context.force("transpose_2d", None)


def piece(context, pointer, n):
    """n elements of 16 bits from `pointer` on."""
    raw = np.empty(n, np.uint16)
    _native.memory_copy(context._native, raw.__array_interface__["data"][0], pointer, raw.nbytes)
    context.synchronize()
    return raw


def test_weights_beyond_2_31_elements(cuda, level):
    """gemm with few rows and a b, stored by columns as weights are, of more than 2^31 elements."""
    if level != "full":
        pytest.skip("level full only")
    spec = all_specs()["gemm"]
    k, count = 4096, (LIMIT // (4096 * PERIOD) // 8 + 2) * 8  # n a multiple of 8, as tiled rows ask
    n, context = count * PERIOD, einkorn.Context(cuda)
    for m in (1, 4, 40):
        case = Case(
            "gemm", (("T", "bf16"), ("D", "bf16")), dims=(("m", m), ("n", PERIOD), ("k", k)), strides="columns:b"
        )
        part = Prepared(spec, case)
        small = part.results(part.run(cuda, AUTO))["d"][0]
        weights = np.ascontiguousarray(part.inputs["b"].T)
        w, d = einkorn.empty((n, k), "bf16", cuda), einkorn.empty((m, n), "bf16", cuda)
        repeat(context, w.pointer, weights, count)
        a = einkorn.empty((m, k), "bf16", cuda)
        repeat(context, a.pointer, np.ascontiguousarray(part.inputs["a"]), 1)
        for row in [*(r.name for r in rows.usable("gemm", cuda)), AUTO]:
            d.fill_bytes(0xFF)
            einkorn.context(cuda).synchronize()
            context.force("gemm", None if row == AUTO else row)
            try:
                einkorn.gemm(a, w.view((k, n), (1, k), 0, "bf16"), d=d, ctx=context)
            except einkorn.Error as e:
                assert e.status == "unsupported" and row != AUTO, e
                continue
            context.synchronize()
            got = np.empty((m, n), np.uint16)
            _native.memory_copy(context._native, got.__array_interface__["data"][0], d.pointer, got.nbytes)
            context.synchronize()
            close(spec, row, "d", got, np.tile(small, (1, count)), "bf16", 0)


def test_columns_beyond_2_32(cuda, level):
    """gemm of one row with 2^32 columns, all of them the same one of b: counts of blocks and columns that are 32 bits."""
    if level != "full":
        pytest.skip("level full only")
    n, k, context, ran = 2**32, 8, einkorn.Context(cuda), set()
    a = einkorn.from_numpy(np.arange(1, k + 1, dtype=np.float16)[None], cuda)
    b = einkorn.from_numpy(np.full((k, 1), 0.5, np.float16), cuda).view((k, n), (1, 0))
    d = einkorn.empty((1, n), "f16", cuda)
    for row in [*(r.name for r in rows.usable("gemm", cuda)), AUTO]:
        d.fill_bytes(0xFF)
        einkorn.context(cuda).synchronize()
        context.force("gemm", None if row == AUTO else row)
        try:
            einkorn.gemm(a, b, d=d, ctx=context)
        except einkorn.Error as e:
            assert e.status == "unsupported" and row != AUTO, e
            continue
        ran.add(context.last_kernel())
        got = np.empty(4096, np.float16)
        for first in [*range(0, n, n // 64), n - got.size]:
            _native.memory_copy(context._native, got.__array_interface__["data"][0], d.pointer + 2 * first, got.nbytes)
            context.synchronize()
            assert (got == 18).all(), f"{row}: wrong from column {first}"
    assert {"gemm_sm80_skinny", "gemm_gemv", "gemm_cuda"} <= ran


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


def close(spec, row, name, got, want, dtype, first):
    """The small run's values, which the other tests check; another row may round the last place otherwise."""
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
        self.count = count if self.grows else 1
        shape, self.dtype = part.shapes[name], part.dtypes[name]
        self.row_elements = int(np.prod(shape[1:])) if self.grows else int(np.prod(shape))
        self.row_bytes = self.row_elements * ITEMSIZE[self.dtype]
        self.array = einkorn.empty((shape[0] * count, *shape[1:]) if self.grows else shape, self.dtype, device)

    def fill(self):
        if self.name not in self.part.inputs:
            self.array.fill_bytes(0xFF)
            return
        raw, count = np.ascontiguousarray(self.part.inputs[self.name]), self.count
        if self.name == "page_table":  # every repetition has pages of its own, far from the first ones
            pages = self.part.shapes["k"][0]
            raw, count = np.concatenate([np.where(raw < pages, raw + i * pages, raw) for i in range(count)]), 1
        repeat(self.context, self.array.pointer, raw, count)

    def read(self, first, n):
        raw = np.empty((n, *self.part.shapes[self.name][1:]), STORAGE[self.dtype])
        pointer = self.array.pointer + first * self.row_bytes
        _native.memory_copy(self.context._native, raw.__array_interface__["data"][0], pointer, raw.nbytes)
        self.context.synchronize()
        return raw
