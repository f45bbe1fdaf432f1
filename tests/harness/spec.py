# SPDX-License-Identifier: Apache-2.0
"""What a test file says about its op, and the cases that follow from it and from the schema."""

import dataclasses
import importlib.util
import itertools
import zlib
from pathlib import Path

import numpy as np
from einkorn.schema import OPS

from .case import Case
from .dtypes import ITEMSIZE

# Last dimensions around every vector width, warp, block and tile.
SIZES = {
    "smoke": [1, 8, 129, 1024, 4097],
    "ci": [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 513, 1023, 1024, 1025, 2047,
           2048, 2880, 4095, 4096, 4097, 5120, 8192, 14336, 16384, 32776, 65536, 262144],
    "full": [*range(1, 70), 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 1152, 2047, 2048, 2049, 2880,
             3072, 4095, 4096, 4097, 5120, 6144, 7168, 8191, 8192, 8193, 12288, 14336, 16383, 16384, 16385, 24576, 28672,
             32768, 32776, 49152, 65535, 65536, 65544, 98304, 131072, 131080, 262143, 262144],
}  # fmt: skip
LEADS = [(3,), (2, 3), (), (1,), (5, 1, 2), (17,), (1, 4), (33,)]
# Many short rows, where work is split over rows.
TALL = {
    "smoke": [],
    "ci": [(130, 64), (1025, 8), (2, 300, 33)],
    "full": [(1025, 8), (4099, 5), (70001, 1), (2, 300, 33)],
}
# A probe: rows that no block of a GPU holds in its registers, whatever the dtype: only clusters of blocks do.
WIDE = {"n": 65544, "lead": (3,)}
# Rows that fill the registers of a block, and those of a cluster, in leading dims that strides take apart.
WIDE_ROWS = [{"n": n, "lead": lead} for n, lead in ((32768, (2, 2)), (65544, (2, 2)), (131072, (3,)), (262144, (2,)))]
# Rows that are the same number of vectors for every thread, with all optional tensors: kernels ask less of those.
WHOLE = {"n": 4096, "lead": (6,)}
WIDE_WHOLE = {"n": 81920, "lead": (2,)}
SAME_LAYOUT = 24  # seeds so far apart give the same strides and gaps: their kinds take turns of 2, 3, 4 and 8
FUZZ = {"smoke": 3, "ci": 100, "full": 200}
MOST = {"smoke": 1 << 14, "ci": 1 << 16, "full": 1 << 20}  # elements of a case, as far as rows can be taken away

GROUPS = ("shapes", "options", "strided", "broadcast", "misaligned", "inplace", "special", "empty", "fuzz")


class Spec:
    """An op's test: its reference and what the schema can't know.

    reference(t, a): t has the inputs as float64 arrays (None where absent), a the attributes, dims and dtypes; returns
    output name -> Expected, Quantized or an array. variants: attribute values worth testing, beside the defaults.
    dims(n, a, i): the free dims of a case of size n, the i-th. inputs(rng, t, a): change the drawn inputs in place.
    special: which of "nan", "inf", "zero", "denormal", "large" rows make sense. large: the dims of a case of which
    some tensor is to have 2^31 elements, where those of dims(4096, ...) would take too long; or a list of such.
    more_large: keywords of large_case() in test_large.py for further ones, until every kernel row has one. probes:
    keywords of case(), for kernel rows that refuse an ordinary one: see probes(). replays: the same for cases that a
    captured graph must follow. wide: the same for rows too long for every group; at level full they also run with gaps
    between them, and in place. nonzero: free dims that are never 0. crowds: (n, rows) at which blocks go on to further
    rows, which must give the bits that a few rows get."""

    def __init__(self, op, reference, *, variants=(), dims=None, inputs=None, sizes=None, large=None, more_large=(),
                 probes=(), replays=(), nonzero=(), crowds=(), wide=(), special=("nan", "inf", "-inf", "zero", "denormal", "large")):  # fmt: skip
        self.op, self.schema, self.reference = op, OPS[op], reference
        self.variants = [{}, *variants]
        self.inputs, self.special = inputs or (lambda rng, t, a: None), special
        self._dims, self._sizes, self._probes, self.nonzero = dims, sizes, probes, nonzero
        self.large, self.more_large = large if isinstance(large, list) else [large or {}], more_large
        self._replays, self.crowds, self._wide = replays, crowds, wide

    # ---- what a case can be -------------------------------------------------------------------------------------------

    groups = GROUPS

    def wants(self, group, row, level):
        """Whether the cases of a group are for this row."""
        return True

    def has_batch(self, tensor):
        """Whether the tensor has an entry for each row or batch entry, which is then its first dim."""
        return tensor.dims[:1] == ("...",) or bool({*tensor.dims[:1]} & {*self.schema.batch})

    def batch_dims(self, tensor):
        """How many of a tensor's first dims may repeat (stride 0) beside those of "..."."""
        return 0

    def strides(self, case, name, shape):
        """Strides of a tensor that has some of its own; None: as the case says."""
        return None

    def combos(self):
        """Every allowed assignment of the dtype variables."""
        op = self.schema
        if op.combos:
            return [tuple(c.items()) for c in op.combos]
        return [tuple(zip(op.dtypes, c, strict=True)) for c in itertools.product(*op.dtypes.values())]

    def dims(self, n, attrs, i):
        if self._dims:
            return self._dims(n, _Values(self.attributes(attrs)), i)
        (name,) = self.schema.free_dims
        return {name: n}

    def attributes(self, changed):
        """All attributes, f32 ones as the f32 that the op gets."""
        values = {a.name: a.default for a in self.schema.attrs} | dict(changed)
        for a in self.schema.attrs:
            if a.type == "f32":
                values[a.name] = float(np.float32(values[a.name]))
        return values

    def values(self, case):
        rows = int(np.prod(case.lead, dtype=np.int64))
        lead = {"rows": rows, "last_lead": case.lead[-1] if case.lead else 1}
        given = {**dict(case.dtypes), **dict(case.dims), **lead, **self.attributes(case.attrs)}
        return self.schema.derive(given, case.present)

    def legal(self, case):
        values = self.values(case)
        return all(self.schema.evaluate(e, values, case.present) for e in self.schema.require)

    def presences(self, attrs, dims):
        """Every set of optional tensors that the requirements allow, the fullest first."""
        names = [t.name for t in self.schema.tensors if t.optional]
        sets = [s for k in range(len(names), -1, -1) for s in itertools.combinations(names, k)]
        return [s for s in sets if self.legal(Case(self.op, dims=_items(dims), attrs=_items(attrs), present=s))]

    def alias_sets(self, case):
        """Every way to run in place: outputs that are one memory with an input of the same shape."""
        values, schema = self.values(case), self.schema
        given = {t.name for t in schema.tensors if not t.optional} | set(case.present)
        pairs = [
            (o, i) for o, i in schema.alias if {o, i} <= given
            and schema.shape(schema.tensor(o), values, case.lead) == schema.shape(schema.tensor(i), values, case.lead)
        ]  # fmt: skip
        sets = [s for k in range(1, len(pairs) + 1) for s in itertools.combinations(pairs, k)]
        return [s for s in sets if len({o for o, _ in s}) == len(s) == len({i for _, i in s})]

    # ---- cases of a group ---------------------------------------------------------------------------------------------

    def cases(self, group, dtypes, level, seed=0):
        found = list(getattr(self, f"_{group}")(dtypes, level, seed))
        # The sanitizers see this level alone, and have to see every row.
        return found + self.probes(dtypes)[1:] if (group, level) == ("shapes", "smoke") else found

    def probes(self, dtypes, n=1024, lead=(64,)):
        """A few cases for tests that go over the rows of an op: an ordinary one, then one for each kind of row that would
        refuse it. Every row takes at least one, in some dtypes."""
        return [self.case(dtypes, n, 0, lead), *(self.case(dtypes, **{"i": 0, **probe}) for probe in self._probes)]

    def replays(self, dtypes):
        return [*self.probes(dtypes), *(self.case(dtypes, **{"i": 0, **replay}) for replay in self._replays)]

    def wide(self, dtypes):
        cases = [self.case(dtypes, **{"i": i, **wide}, seed=100 + i) for i, wide in enumerate(self._wide)]
        return cases if self.schema.has_lead else [self.with_batch(case, 2) for case in cases]

    def changed(self, case):
        """The case with other data in the same memory, for a captured graph to follow."""
        return [dataclasses.replace(case, seed=SAME_LAYOUT * s) for s in range(4)]

    def case(self, dtypes, n, i, lead=None, variant=None, presence=None, **rest):
        """The i-th case of size n: variants, presences and leading dims take turns."""
        attrs = self.variants[i % len(self.variants)] if variant is None else variant
        dims = self.dims(n, attrs, i)
        if presence is None:
            choices = self.presences(attrs, dims)
            presence = choices[(i // len(self.variants)) % len(choices)]
        if not self.schema.has_lead:
            lead = ()
        elif lead is None:
            lead = LEADS[i % len(LEADS)]
        seed = rest.pop("seed", i)
        return Case(self.op, dtypes, tuple(lead), _items(dims), _items(attrs), presence, seed=seed, **rest)

    def with_batch(self, case, n):
        """The case with n rows, or n entries in its batch dim."""
        if self.schema.has_lead:
            return dataclasses.replace(case, lead=(n,))
        return dataclasses.replace(case, dims=_items({**dict(case.dims), self.schema.batch[0]: n}))

    def shifts(self, dtypes):
        """Bytes past an aligned address that move some tensor; one of larger elements goes to its next element."""
        least = min(ITEMSIZE[dict(dtypes).get(t.dtype, t.dtype)] for t in self.schema.tensors)
        return [s for s in (1, 2, 4, 8) if s >= least]

    def sizes(self, level):
        return self._sizes[level] if self._sizes else SIZES[level]

    def fit(self, n, lead, level):
        """lead, made smaller where the case would be too large to check quickly."""
        while lead and n * int(np.prod(lead)) > max(MOST[level], 2 * n):
            largest = max(range(len(lead)), key=lambda d: lead[d])
            lead = (*lead[:largest], max(lead[largest] // 2, 1), *lead[largest + 1 :])
        return lead

    def _shapes(self, dtypes, level, seed):
        for i, n in enumerate(self.sizes(level)):
            yield self.case(dtypes, n, i, self.fit(n, LEADS[i % len(LEADS)], level))
        if self.schema.has_lead and not self._sizes:
            for i, (*lead, n) in enumerate(TALL[level]):
                yield self.case(dtypes, n, i, lead)

    def _options(self, dtypes, level, seed):
        for n in (12,) if level == "smoke" else (12, 264):
            for variant in self.variants:
                for i, presence in enumerate(self.presences(variant, self.dims(n, variant, 0))):
                    yield self.case(dtypes, n, i, (2, 3), variant, presence)

    def _strided(self, dtypes, level, seed):
        for i, n in enumerate([7, 64, 129, 1024, 40, 16, 520, 2056][: 3 if level == "smoke" else 8]):
            lead = [(3, 4), (5,), (2, 3, 2), (1, 6), (2, 2, 3, 2, 2)][i % 5]
            yield self.case(dtypes, n, i, lead, strides="random", seed=100 + i)
        for case in self.wide(dtypes) if level == "full" else ():
            yield dataclasses.replace(case, strides="aligned")

    def _broadcast(self, dtypes, level, seed):
        if self.schema.has_lead:
            for i, n in enumerate([129, 64, 1024]):
                yield self.case(dtypes, n, i, [(3, 4), (5,), (2, 1, 3)][i % 3], strides="broadcast", seed=200 + i)

    def _misaligned(self, dtypes, level, seed):
        """Every tensor a few bytes past an aligned address; and each alone, where rows want all of them aligned."""
        for shift in self.shifts(dtypes):
            for i, n in enumerate([8, 129, 1024, 4096][: 2 if level == "smoke" else 4]):
                yield self.case(dtypes, n, i, shift=shift)
        cases = [self.case(dtypes, 1024, i, (3,)) for i in range(1 if level == "smoke" else 2)]
        cases += self.wide(dtypes) if level == "full" else []
        for case, shift in itertools.product(cases, (self.shifts(dtypes)[0], 8)):
            for t in self.schema.tensors:
                if not t.optional or t.name in case.present:
                    yield dataclasses.replace(case, shift=shift, moved=t.name)

    def _inplace(self, dtypes, level, seed):
        for variant in self.variants:
            for n in (9, 1024):
                for presence in self.presences(variant, self.dims(n, variant, 0))[: 1 if level == "smoke" else 2]:
                    case = self.case(dtypes, n, 0, (3,), variant, presence)
                    for alias in self.alias_sets(case):
                        yield self.case(dtypes, n, 0, (3,), variant, presence, alias=alias)
                        yield self.case(dtypes, n, 1, (2, 3), variant, presence, alias=alias, strides="random")
        for case in self.wide(dtypes) if level == "full" else ():
            for alias, strides in itertools.product(self.alias_sets(case), ("dense", "aligned")):
                yield dataclasses.replace(case, alias=alias, strides=strides)

    def _special(self, dtypes, level, seed):
        sums = any(t.role != "in" and not self.has_batch(t) for t in self.schema.tensors)
        for i, n in enumerate([65, 1024 if self.schema.has_lead else 256, 16][: 1 if level == "smoke" else 3]):
            for j, variant in enumerate(self.variants):
                case = self.case(dtypes, n, i + j, variant=variant, fill="special")
                case = self.with_batch(case, len(self.special) + 2)
                yield case
                if sums:  # over all rows: a NaN would hide what the others do to them
                    yield dataclasses.replace(case, fill="finite")
        for case in self.probes(dtypes)[1:] if level == "full" else ():
            yield self.with_batch(dataclasses.replace(case, fill="special"), len(self.special) + 2)

    def _empty(self, dtypes, level, seed):
        """No rows; rows of nothing, whose statistics and scales are still written; each other dim of size 0."""
        if self.schema.has_lead:
            for i, lead in enumerate([(0,), (2, 0, 3)]):
                yield self.case(dtypes, 16, i, lead)
                yield self.case(dtypes, 16, i + 1, lead)
        leads = ((3,), (1,)) if self.schema.has_lead else ((),)
        for i, variant in enumerate(self.variants):
            usual = self.dims(16, variant, i)
            for name in (n for n in usual if n not in self.nonzero):
                dims = {**usual, name: 0}
                # A single row has no stride that could keep vectors away.
                for presence, lead in itertools.product(self.presences(variant, dims)[:2], leads):
                    yield dataclasses.replace(self.case(dtypes, 16, i, lead, variant, presence), dims=_items(dims))

    def _fuzz(self, dtypes, level, seed):
        for i in range(FUZZ[level]):
            own = zlib.crc32(f"{self.op} {dtypes} {seed} {i}".encode())
            case = self.random_case(dtypes, np.random.default_rng(own), own)
            if case is not None:
                yield case

    def random_case(self, dtypes, rng, seed):
        attrs = self.variants[rng.integers(len(self.variants))]
        n = int(rng.choice(self.sizes("ci")[:27])) if rng.random() < 0.5 else int(np.exp(rng.uniform(0, 7.5)))
        dims = self.dims(n, attrs, int(rng.integers(8)))
        choices = self.presences(attrs, dims)
        presence = choices[rng.integers(len(choices))]
        lead = tuple(int(rng.integers(1, 7)) for _ in range(rng.integers(4))) if self.schema.has_lead else ()
        case = Case(
            self.op, dtypes, self.fit(n, lead, "ci"), _items(dims), _items(attrs), presence,
            strides=str(rng.choice(["dense", "random", "broadcast"], p=[0.5, 0.4, 0.1])),
            shift=int(rng.choice([0, 0, 0, 2, 4, 8, 16])), seed=seed,
        )  # fmt: skip
        aliases = self.alias_sets(case)
        if aliases and case.strides != "broadcast" and rng.random() < 0.25:
            case = Case(**{**case.__dict__, "alias": aliases[rng.integers(len(aliases))]})
        return case


class _Values:
    """Attribute access to a dict."""

    def __init__(self, values):
        self.__dict__.update(values)


def _items(values):
    return tuple(values.items())


def test_file(op):
    return Path(__file__).resolve().parent.parent / "ops" / OPS[op].family / f"test_{op}.py"


def all_specs():
    """Op name -> Spec, from the test file of every op of the schema; a missing file is an error."""
    if not _specs:
        for op in OPS:
            module_spec = importlib.util.spec_from_file_location(f"spec_of_{op}", test_file(op))
            module = importlib.util.module_from_spec(module_spec)
            module_spec.loader.exec_module(module)
            _specs[op] = module.SPEC
    return _specs


_specs = {}
