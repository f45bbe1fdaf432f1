# SPDX-License-Identifier: Apache-2.0
"""Makes the memory of a case, runs an op on it with one row forced, and looks at every byte afterwards."""

import contextlib
import sys
import warnings
from pathlib import Path

import einkorn
import numpy as np

from . import memory, rows
from .dtypes import ITEMSIZE, decode, encode
from .tolerance import Expected

GAINS = (1.0, 1.0, 0.02, 20.0)  # how large inputs are; a case's seed picks
GAPS = (0, memory.PADDED, 0, 3)  # elements between the lines of matrices; a case's seed picks
POISONS = (0xFF, 0x7F)  # NaN in every format; NaN in f16 and e4m3, a huge number in f32 and bf16
AUTO = "auto"  # no row forced: the dispatcher's own choice


class Refused(Exception):
    """The forced row does not take the case, and said why."""


class Prepared:
    """A case with its inputs drawn and its memory laid out; made once, run on many rows."""

    def __init__(self, spec, case, inputs=None):
        self.spec, self.case = spec, case
        schema = spec.schema
        self.values = spec.values(case)
        given = [t for t in schema.tensors if not t.optional or t.name in case.present]
        self.tensors = {t.name: t for t in given}
        self.dtypes = {t.name: dict(case.dtypes).get(t.dtype, t.dtype) for t in given}
        self.shapes = {t.name: schema.shape(t, self.values, case.lead) for t in given}
        self.outputs = [t.name for t in given if t.role != "in"]
        self.empty = all(0 in self.shapes[n] for n in self.outputs)
        self._place()
        self._draw(inputs)
        self._expected = None

    def _place(self):
        """Tensors one after the other, a guard band before, between and after."""
        rng, case, at = np.random.default_rng(self.case.seed), self.case, memory.GUARD
        self.placed = {}
        same = {o: i for o, i in case.alias}
        for name, t in self.tensors.items():
            if name in same:
                continue
            shape, lead = self.shapes[name], len(case.lead) if "..." in t.dims else 0
            free_last = t.strided or lead == len(shape)
            own = self.spec.strides(case, name, shape)
            if own is not None:
                strides = own
            elif case.strides == "random":
                strides = memory.strided(shape, free_last, rng)
            elif case.strides == "aligned":
                strides = memory.strided(shape, free_last, rng, gaps=(16, 64))
            elif case.strides == "broadcast" and t.role == "in":
                strides = memory.broadcast(shape, lead or self.spec.batch_dims(t), rng)
            elif case.strides.startswith("columns:"):
                columns, _, shared = case.strides.removeprefix("columns:").partition(":")
                strides = memory.by_lines(shape, name in columns.split(","), GAPS[case.seed % 4])
                if name in shared.split(","):
                    strides = (0, *strides[1:])
            else:
                strides = memory.dense(shape)
            size = ITEMSIZE[self.dtypes[name]]
            shift = -(-case.shift // size) * size if case.moved in ("", name) else 0
            self.placed[name] = memory.Placed(at + shift, shape, strides, self.dtypes[name])
            at = -(-(self.placed[name].end + 2 * memory.GUARD) // 256) * 256
        for o, i in case.alias:
            self.placed[o] = self.placed[i]
        self.nbytes = at

    def _draw(self, inputs):
        self.block = np.full(self.nbytes, memory.GUARD_BYTE, np.uint8)
        written = [self.placed[n] for n in self.outputs]
        for placed in self.placed.values():
            if placed in written:
                self.block[placed.start : placed.end] = POISONS[self.case.seed % 2]
            else:
                self.block[placed.start - memory.GUARD : placed.end + memory.GUARD] = memory.INPUT_BYTE
        raw = inputs or {n: encode(v, self.dtypes[n]) for n, v in self._values().items() if v is not None}
        self.inputs = {}
        for name, value in raw.items():
            view = self.placed[name].view(self.block)
            view[...] = value
            self.inputs[name] = view.copy()  # what the memory holds: a broadcast dim keeps one of its values

    def _values(self):
        """Random numbers for what is read, as the spec wants them; None for what is absent."""
        rng, case, t = np.random.default_rng(case_seed(self.case)), self.case, {}
        for name, tensor in self.tensors.items():
            if tensor.role != "out":
                t[name] = rng.standard_normal(self.shapes[name], np.float32).astype(np.float64) * GAINS[case.seed % 4]
        t |= {x.name: None for x in self.spec.schema.tensors if x.role != "out" and x.name not in t}
        if case.fill != "normal":
            kinds = [k for k in self.spec.special if case.fill == "special" or k in ("zero", "denormal", "large")]
            for name, value in t.items():
                if value is not None and self.spec.has_batch(self.tensors[name]):
                    make_special(value, kinds, rng)
        with quiet():
            self.spec.inputs(rng, t, _Namespace(self.values))
        return t

    def expected(self):
        """Output name -> Expected or Quantized; the reference runs once."""
        if self._expected is None:
            absent = {t.name: None for t in self.spec.schema.tensors}
            t = absent | {n: decode(raw, self.dtypes[n]) for n, raw in self.inputs.items()}
            with quiet():
                found = self.spec.reference(_Namespace(t), _Namespace(self.values))
            self._expected = {n: e if hasattr(e, "check") else Expected(e) for n, e in found.items()}
        return self._expected

    # ---- running ------------------------------------------------------------------------------------------------------

    def arguments(self, arena):
        """Keywords for the op's function: the tensors in the arena, the attributes."""
        return {n: placed.on(arena) for n, placed in self.placed.items()} | dict(self.case.attrs)

    def call(self, arena, context):
        getattr(einkorn, self.spec.op)(**self.arguments(arena), ctx=context)

    def run(self, device, row, context=None, arena=None):
        """The block after the call. Refused: the row did not take it, and nothing was written."""
        op = self.spec.op
        arena = arena or memory.Arena.at_least(device, self.nbytes)
        context = context or arena.context_for(rows.needs_tf32(op, row))
        arena.upload(self.block)
        context.force(op, None if row == AUTO else row)
        try:
            self.call(arena, context)
        except einkorn.Error as e:
            if e.status != "unsupported" or row == AUTO:
                raise
            assert row in str(e) and "refuses: " in str(e), f"a refusal must name the row and the reason: {e}"
            after = arena.download(self.nbytes)
            assert np.array_equal(after, self.block), f"{row} refused the case and still wrote"
            rows.refused(row, str(e).partition("refuses: ")[2])
            raise Refused(str(e)) from None
        finally:
            context.force(op, None)
        after = arena.download(self.nbytes)
        if not self.empty:
            ran = context.last_kernel()
            assert row in (AUTO, ran), f"{row} was forced, {ran} ran"
            rows.ran(ran)
        return after

    def results(self, after):
        """Output name -> (stored elements, dtype)."""
        return {n: (self.placed[n].view(after).copy(), self.dtypes[n]) for n in self.outputs}

    def check(self, after, tf32=False):
        """Right results, and not a byte changed beside them. tf32: as a row with that flag may compute them."""
        got = self.results(after)
        for name in self.outputs:
            assert name in self.expected(), f"the reference of {self.spec.op} says nothing of {name}"
            expected = self.expected()[name]
            (expected.with_tf32() if tf32 else expected).check(name, got)
        self.check_untouched(after)

    def check_untouched(self, after):
        after = after.copy()
        for name in self.outputs:
            self.placed[name].view(after)[...] = self.placed[name].view(self.block)
        changed = np.flatnonzero(after != self.block)
        if changed.size:
            raise AssertionError(f"{changed.size} bytes beside the outputs changed: {self.where(int(changed[0]))}")

    def where(self, at):
        """Words for a position in the block."""
        near = min(self.placed, key=lambda n: max(self.placed[n].start - at, at - self.placed[n].end + 1, 0))
        placed = self.placed[near]
        if at < placed.start:
            return f"the first {placed.start - at} bytes before {near}"
        return f"the first {at - placed.start} bytes into {near}" + (", past its end" if at >= placed.end else "")


def check_case(prepared, device, row):
    """Run and check one case; a failure ends with the line that repeats it. False: the row refused."""
    try:
        prepared.check(prepared.run(device, row), rows.needs_tf32(prepared.spec.op, row))
    except Refused:
        return False
    except (AssertionError, einkorn.Error) as e:
        raise AssertionError(f"{e}\n{reproducer(prepared.spec, prepared.case, row)}") from None
    return True


def over_rows(spec, names, wanted, check, cases=None):
    """check(row, case) for every row and every probe in the wanted dtypes; it says whether the row took the case. A row
    that takes none of these gets the other dtypes, up to the first that it takes, and one that takes nothing at all is
    an error: a test that meant it would pass without it. cases(dtypes): in place of the spec's probes."""
    cases, others, untested = cases or spec.probes, [c for c in spec.combos() if c not in wanted], []
    for row in names:
        took = [check(row, case) for dtypes in wanted for case in cases(dtypes)]
        more = (check(row, case) for dtypes in others for case in cases(dtypes))
        if not any(took) and not any(more) and not rows.lacks_library(row):
            untested.append(f"{row} ({'; '.join(rows.refusals(row))})")
    assert not untested, f"refused every case: {', '.join(untested)}"


def batch_of(full, n):
    """A batch of n entries: those of `full`, one after the other and from the first one again."""
    spec, batch = full.spec, full.spec.schema.batch[0]
    inputs = {k: v[np.arange(n) % len(v)] if batch in full.tensors[k].dims else v for k, v in full.inputs.items()}
    return Prepared(spec, spec.with_batch(full.case, n), inputs)


def check_batches(full, device, row, context, batches, part_of=batch_of):
    """Whether the row takes the case, and then: that an entry has the bits it has in `full` in every batch."""
    batch = full.spec.schema.batch[0]
    try:
        whole = full.results(full.run(device, row, context))
    except Refused:
        return False
    count = next(whole[n][0].shape[0] for n in whole if batch in full.tensors[n].dims)
    for b in batches:
        part = part_of(full, b)
        try:
            got = part.results(part.run(device, row, context))
        except Refused:
            continue
        entries = np.arange(b) % count
        for name, (values, _) in got.items():
            if batch in full.tensors[name].dims:
                same = values.tobytes() == np.ascontiguousarray(whole[name][0][entries]).tobytes()
                assert same, f"{row}: {name} differs in a batch of {b} from one of {count}, {part.case}"
    return True


def reproducer(spec, case, row):
    path = f"tests/ops/{spec.schema.family}/test_{spec.op}.py"
    package = Path(einkorn.__file__).parents[1]
    return f'repeat: PYTHONPATH={package} {sys.executable} -m pytest {path} --row {row} --case "{case}"'


def case_seed(case):
    """The same inputs for every dtype and layout of a seed."""
    return [case.seed, len(case.op), *case.lead]


def make_special(value, kinds, rng):
    """The first rows, or batch entries, get something that is easy to lose; what follows them must not notice."""
    fills = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "zero": 0.0, "denormal": 2.0**-140, "large": 1000.0}
    first = value.reshape(value.shape[0], -1) if value.ndim > 1 else value.reshape(-1, 1)
    for r, kind in enumerate(kinds[: value.shape[0]]):
        if kind in ("zero", "denormal"):
            first[r] = fills[kind] * np.where(rng.random(first[r].shape) < 0.5, -1, 1)
        else:
            first[r, rng.integers(first.shape[1])] = fills[kind]


@contextlib.contextmanager
def quiet():
    """Infinities, NaN and means of nothing are what references are asked for."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class _Namespace:
    def __init__(self, values):
        self.__dict__.update(values)
