# SPDX-License-Identifier: Apache-2.0
"""The op schema at run time, for tools that treat all ops alike: einkorn.schema.OPS['rms_norm'].tensors ..."""

from dataclasses import dataclass

from ._schema_gen import DTYPES, ENUMS
from ._schema_gen import OPS as _TABLES

__all__ = ["DTYPES", "ENUMS", "OPS", "Attr", "Op", "Tensor"]


@dataclass(frozen=True)
class Tensor:
    name: str
    role: str  # in, inout, out
    dtype: str  # a dtype variable of the op or a dtype
    dims: tuple  # names, integers, at most one "..."
    optional: bool
    strided: bool  # any stride in the last dim too
    host: bool
    is_list: bool


@dataclass(frozen=True)
class Attr:
    name: str
    type: str  # f32, f64, i32, i64, bool, enum
    default: object
    enum: str


@dataclass(frozen=True)
class Op:
    name: str
    family: str
    doc: str
    dtypes: dict  # variable -> dtype names
    combos: list  # allowed assignments; empty: all
    tensors: tuple
    attrs: tuple
    fields: tuple  # names of tensors and attrs in the order of the C struct
    dims: dict  # derived dim -> expression
    alias: tuple  # (output, input) that may be the same memory
    require: dict  # expression -> sentence
    batch: tuple
    bytes: str
    flops: str
    backward: dict

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    @property
    def has_lead(self):
        return any("..." in t.dims for t in self.tensors)

    @property
    def free_dims(self):
        """Named dims that follow from no other, in order of appearance."""
        names = (d for t in self.tensors for d in t.dims if isinstance(d, str) and d != "..." and d not in self.dims)
        return tuple(dict.fromkeys(names))

    def evaluate(self, expression, values, has=()):
        """An expression of the schema; values: dims, rows, attrs, dtype variables; has: optional tensors present."""
        return eval(expression, {"__builtins__": {}}, {**_FUNCTIONS, **values, "has": has})

    def derive(self, values, has=()):
        """values with the derived dims added."""
        values = dict(values)
        for name, expression in self.dims.items():
            values[name] = self.evaluate(expression, values, has)
        return values

    def shape(self, tensor, values, lead=()):
        """The shape of a tensor from derived values and the sizes that "..." stands for."""
        out = []
        for d in tensor.dims:
            out += lead if d == "..." else [d if isinstance(d, int) else values[d]]
        return tuple(out)


def _sizeof(dtype):
    bits = DTYPES[dtype][1]
    return bits // 8 if bits % 8 == 0 else bits / 8


_FUNCTIONS = {"sizeof": _sizeof, "ceil_div": lambda a, b: -(-a // b), "min": min, "max": max}


def _op(name, table):
    tensors = tuple(
        Tensor(n, role, dtype, tuple(dims), *(w in words.split() for w in ("optional", "strided", "host", "list")))
        for n, role, dtype, dims, words in table["tensors"]
    )
    rest = {k: table[k] for k in ("family", "doc", "dtypes", "combos", "dims", "require", "bytes", "flops", "backward")}
    return Op(
        name=name, tensors=tensors, attrs=tuple(Attr(*a) for a in table["attrs"]), fields=tuple(table["fields"]),
        alias=tuple(table["alias"]), batch=tuple(table["batch"]), **rest,
    )  # fmt: skip


OPS = {name: _op(name, table) for name, table in _TABLES.items()}
