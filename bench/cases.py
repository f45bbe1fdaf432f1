# SPDX-License-Identifier: Apache-2.0
"""Reads bench/cases/<family>.toml against the schema. Nothing here needs an array library or a GPU."""

import itertools
import math
import sys
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from einkorn_gen import schema  # noqa: E402

from bench import attention  # noqa: E402
from bench.formulas_gen import FORMULAS, sizeof  # noqa: E402

KEYS = ("model", "lead", "pitch", "give", "tags")
TAGS = ("compile", "launch", "pdl")
LAYOUTS = ("nt", "nn", "tn", "tt")  # of a product's operands: by rows or, t, by columns; the first is the default
FIRST, SECOND = ("a", "x"), ("b", "w1", "w2", "gate", "up")  # tensors that its letters speak of


class CaseError(Exception):
    """Says which file, op and case is wrong."""


@dataclass(frozen=True)
class Case:
    op: schema.Op
    sizes: dict  # rows and the dims that the case gives; derived ones are in dims
    dtypes: dict  # dtype variable -> dtype name
    attrs: dict  # those that differ from the default
    give: tuple = ()  # optional tensors that are passed
    model: str = ""  # where the size comes from
    lead: tuple = ()  # the dims of "...", where they are not just rows
    pitch: int = 0  # elements from one of the first lead dim to the next, in x
    tags: tuple = field(default=())
    layout: str = ""  # one of LAYOUTS, for products

    @property
    def _formula(self):
        sizes = {k: v for k, v in self.sizes.items() if k != "rows" or self.op.has_lead}
        return FORMULAS[self.op.name](**self.dtypes, **sizes, **self.attrs, has=self.give)

    @property
    def dims(self):
        return {**self.sizes, **self._formula[0]}

    @property
    def result_dims(self):
        """The dims by which a result speaks of the case."""
        return attention.dims(self) if attention.is_one(self.op) else self.dims

    @property
    def bytes(self):
        return self._formula[1]

    @property
    def flops(self):
        return self._formula[2]

    @property
    def dtype(self):
        return "_".join(dict.fromkeys(self.dtypes.values()))

    @property
    def all_attrs(self):
        return {a.name: a.default for a in self.op.attrs} | self.attrs

    @property
    def label(self):
        """What tells this case from the others of its op and dtype."""
        if attention.is_one(self.op):
            return attention.label(self)
        shape = "x".join(str(n) for k, n in self.sizes.items() if k != "rows" or n > 1 or len(self.sizes) == 2)
        words = [shape, *(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.attrs.items())]
        if self.pitch:
            words.append(f"pitch={self.pitch}")
        if self.layout not in ("", LAYOUTS[0]):
            words.append(self.layout)
        return " ".join(words)

    def shape(self, tensor):
        """Shape of one of the op's tensors."""
        dims = self.dims
        lead = self.lead or ((dims["rows"],) if "rows" in dims else ())
        parts = [lead if d == "..." else (d if isinstance(d, int) else dims[d],) for d in tensor.dims]
        return tuple(n for part in parts for n in part)

    def by_columns(self, tensor):
        """Whether the tensor, a matrix, is stored column after column."""
        letter = tensor.name in FIRST and self.layout[:1] or tensor.name in SECOND and self.layout[1:]
        return letter == "t"

    def tensor_dtype(self, tensor):
        return self.dtypes.get(tensor.dtype, tensor.dtype)

    def tensors(self):
        """The op's tensors that take part in this case."""
        return [t for t in self.op.tensors if not t.optional or t.name in self.give]

    @property
    def set_bytes(self):
        """Memory of one set of arguments, which is what must not fit into the cache."""
        return sum(self.set_bytes_of(t) for t in self.tensors())

    def set_bytes_of(self, tensor):
        return math.prod(self.shape(tensor)) * sizeof(self.tensor_dtype(tensor))


def shrink(case, limit):
    """The same case with rows, or its largest dim, halved until it moves at most `limit` bytes: for runs on a CPU."""
    while case.bytes > limit:
        if attention.is_one(case.op):
            case = attention.smaller(case)
            continue
        sizes = dict(case.sizes)
        name = "rows" if sizes.get("rows", 1) > 1 else max(sizes, key=sizes.get)
        if case.lead:
            lead = (case.lead[0] // 2, *case.lead[1:])
            sizes["rows"] = math.prod(lead)
            case = replace(case, sizes=sizes, lead=lead)
            continue
        sizes[name] //= 2
        case = replace(case, sizes=sizes)
    return case


def load_ops():
    return schema.load(ROOT / "schema")


def families(ops):
    return list(dict.fromkeys(op.family for op in ops))


def load(family, ops=None, folder=ROOT / "bench" / "cases"):
    """All cases of a family, in file order."""
    ops = {op.name: op for op in (ops or load_ops()) if op.family == family}
    file = Path(folder) / f"{family}.toml"
    cases = []
    for name, table in tomllib.loads(file.read_text()).items():
        if name not in ops:
            raise CaseError(f"{file}: {name}: no such op in schema/{family}.toml")
        for key in table:
            if key not in ("give", "cases"):
                raise CaseError(f"{file}: {name}.{key}: expected give or cases")
        for i, line in enumerate(table["cases"]):
            for one in _expand(line):
                one = attention.line(name, {"give": table.get("give", []), **one})
                cases.append(_case(f"{file}: {name}.cases[{i}]", ops[name], one))
    seen = {}
    for case in cases:
        key = (case.op.name, case.label, case.dtype, "launch" in case.tags)
        if key in seen:
            raise CaseError(f"{file}: {case.op.name}: two cases are {case.label} {case.dtype}")
        seen[key] = case
    return cases


def _expand(line):
    """One line for each combination of the values that are lists; nk and cube become m, n and k."""
    one = dict(line)
    if "cube" in one:
        sides = one.pop("cube")
        return [
            c for s in (sides if isinstance(sides, list) else [sides]) for c in _expand({"m": s, "n": s, "k": s, **one})
        ]
    if "nk" in one:
        return [c for n, k in one.pop("nk") for c in _expand({**one, "n": n, "k": k})]
    many = [k for k, v in one.items() if isinstance(v, list) and k not in ("lead", "give", "tags")]
    found = [{**one, **dict(zip(many, v, strict=True))} for v in itertools.product(*(one[k] for k in many))]
    for c in found:  # torch.compile takes its time: of several dtypes the first is enough
        if any(c[k] != one[k][0] for k in many if k.isupper()):
            c["tags"] = [t for t in c.get("tags", ()) if t != "compile"]
    return found


def _case(where, op, line):
    attrs = {a.name: a for a in op.attrs}
    derived = set(op.dims)
    named = [d for d in op.dim_names if d not in derived]
    product = any(t.name in SECOND and "k" in t.dims for t in op.tensors)
    for key in line:
        if key not in (
            *KEYS,
            *(["layout"] if product else []),
            *named,
            *attrs,
            *op.dtypes,
            *(["rows"] if op.has_lead else []),
        ):
            raise CaseError(
                f"{where}.{key}: neither a dim, dtype or attribute of {op.name} nor one of {', '.join(KEYS)}"
            )
    lead = tuple(line.get("lead", ()))
    sizes = {"rows": math.prod(lead) if lead else line.get("rows", 1)} if op.has_lead else {}
    for d in named:
        if d not in line and all(t.optional and t.name not in line["give"] for t in op.tensors if d in t.dims):
            sizes[d] = 0  # as in C: only tensors that are absent have it
            continue
        if d not in line:
            raise CaseError(f"{where}.{d}: missing")
        sizes[d] = line[d]
    if {"m", "n", "k"} <= set(sizes):  # as one speaks of a product
        sizes = {d: sizes[d] for d in sorted(sizes, key=lambda d: (d not in ("batch", "m"), d == "width", d == "k"))}
    dtypes = {v: line.get(v, "bf16" if "bf16" in names else names[0]) for v, names in op.dtypes.items()}
    for other in ("D", "K"):
        if op.combos and other in op.dtypes and other not in line:
            dtypes[other] = dtypes["T"]
    layout = line.get("layout", LAYOUTS[0]) if product else ""
    if product and layout not in LAYOUTS:
        raise CaseError(f"{where}.layout: {layout!r} is not one of {', '.join(LAYOUTS)}")
    for v, dtype in dtypes.items():
        if dtype not in op.dtypes[v]:
            raise CaseError(f"{where}.{v}: {dtype!r} is not one of {', '.join(op.dtypes[v])}")
    for tag in line.get("tags", ()):
        if tag not in TAGS:
            raise CaseError(f"{where}.tags: {tag!r} is not one of {', '.join(TAGS)}")
    for name in line["give"]:
        if name not in [t.name for t in op.tensors if t.optional]:
            raise CaseError(f"{where}.give: {name!r} is not an optional tensor of {op.name}")
    given = {k: line[k] for k, a in attrs.items() if k in line and line[k] != a.default}
    return Case(
        op, sizes, dtypes, given, tuple(line["give"]), line.get("model", ""), lead, line.get("pitch", 0),
        tuple(line.get("tags", ())), layout,
    )  # fmt: skip
