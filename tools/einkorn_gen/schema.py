# SPDX-License-Identifier: Apache-2.0
"""Reads schema/<family>.toml into plain objects and refuses what it does not understand. docs/schema.md is the grammar."""

import ast
import keyword
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

# name -> (DLPack code, bits). The C constants are EK_DTYPE_<NAME> in einkorn.h.
DTYPES = {
    "bool": (6, 8), "u8": (1, 8), "i8": (0, 8), "i32": (0, 32), "i64": (0, 64),
    "f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16),
    "e4m3": (10, 8), "e5m2": (12, 8), "e8m0": (14, 8), "e2m1": (17, 4), "i4": (0, 4), "u4": (1, 4),
}  # fmt: skip
ATTR_TYPES = ("f32", "f64", "i32", "i64", "bool", "enum")
MAX_FLOAT = {"f32": (2 - 2**-23) * 2.0**127, "f64": sys.float_info.max}
MAX_VALUE = {int: 2**63 - 1, float: MAX_FLOAT["f32"]}  # of a number in an expression
MAX_DIMS = 8
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
TENSOR = re.compile(r"(list )?(\w+)\[([^\]]*)\](\?)?((?: \w+)*)\Z")
FIELDS = {
    "doc": str, "dtypes": dict, "combos": list, "in": dict, "inout": dict, "out": dict, "dims": dict, "attrs": dict,
    "alias": list, "require": dict, "batch": list, "bytes": str, "flops": str, "backward": dict, "since": dict,
}  # fmt: skip
KINDS = {str: "a text", dict: "a table", list: "a list", int: "a number"}
FUNCTIONS = {"has": 1, "sizeof": 1, "ceil_div": 2, "min": 2, "max": 2}
# What can't name an op, an argument or a dim: keywords of Python, C or C++, what expressions call or ask sizeof() of,
# and what every args struct or Python function has already.
RESERVED = {
    *keyword.kwlist, *DTYPES, *FUNCTIONS, "alignas", "alignof", "and_eq", "asm", "auto", "bitand", "bitor", "bool",
    "case", "catch", "char", "char16_t", "char32_t", "char8_t", "co_await", "co_return", "co_yield", "compl",
    "concept", "const", "const_cast", "consteval", "constexpr", "constinit", "decltype", "default", "delete", "do",
    "double", "dynamic_cast", "enum", "explicit", "export", "extern", "false", "float", "friend", "goto", "inline",
    "int", "long", "mutable", "namespace", "new", "noexcept", "not_eq", "nullptr", "operator", "or_eq", "private",
    "protected", "public", "register", "reinterpret_cast", "requires", "restrict", "short", "signed", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local", "throw", "true",
    "typedef", "typeid", "typename", "typeof", "typeof_unqual", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "xor", "xor_eq",
    "NULL", "context", "ctx", "dtype", "elements", "last_lead", "lead", "reserved", "rows", "struct_size",
}  # fmt: skip


class SchemaError(Exception):
    """Says which file, op and field is wrong, and what was expected."""


@dataclass
class Tensor:
    name: str
    role: str  # in, inout, out
    dtype: str  # a dtype variable of the op, or the name of a dtype
    dims: list  # names, integers, at most one "..."
    optional: bool = False
    strided: bool = False  # any stride in the last dim too
    host: bool = False  # lives in host memory whatever the context's device
    is_list: bool = False
    since: int = 0

    @property
    def lead(self):
        """Index of "..." in dims, or -1."""
        return self.dims.index("...") if "..." in self.dims else -1

    @property
    def text(self):
        words = " strided" * self.strided + " host" * self.host
        dims = ", ".join(str(d) for d in self.dims)
        return f"{'list ' * self.is_list}{self.dtype}[{dims}]{'?' * self.optional}{words}"


@dataclass
class Attr:
    name: str
    type: str  # one of ATTR_TYPES
    default: object
    enum: str = ""
    since: int = 0


@dataclass
class Op:
    name: str
    family: str
    doc: str
    dtypes: dict  # variable -> list of dtype names
    combos: list  # allowed assignments of the variables; empty: all
    tensors: list
    attrs: list
    dims: dict  # derived dim -> expression
    alias: list  # (output, input) pairs that may be the same memory
    require: dict  # expression -> sentence
    batch: list  # dims that the rest of a batch has a say in; what is derived from them is in batch_dims only
    bytes: str
    flops: str
    backward: dict
    enums: dict = field(default_factory=dict)  # every enum of the schema: name -> values

    @property
    def has_lead(self):
        return any("..." in t.dims and not t.is_list for t in self.tensors)

    @property
    def has_list(self):
        return any(t.is_list for t in self.tensors)

    @property
    def dim_names(self):
        """Named dims in order of first appearance, derived ones last; `rows` (the product of "...") not among them."""
        seen = [d for t in self.tensors for d in t.dims if isinstance(d, str) and d != "..." and d not in self.dims]
        return list(dict.fromkeys(seen)) + list(self.dims)

    @property
    def batch_dims(self):
        """Those of `batch`, with `rows` for "...", and all that are derived from them."""
        found = {"rows" if b == "..." else b for b in self.batch}
        for d, text in self.dims.items():  # in this order: each may name those before it
            if found & {n.id for n in ast.walk(parse_expression(text)) if isinstance(n, ast.Name)}:
                found.add(d)
        return found

    @property
    def outputs(self):
        return [t for t in self.tensors if t.role != "in"]

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    @property
    def fields(self):
        """Tensors and attributes in the order of the C struct: what came later stands at the end."""
        return sorted([*self.tensors, *self.attrs], key=lambda f: f.since)

    @property
    def enum_values(self):
        """The bare names an expression may use for enum values -> their enum's name."""
        return {v: a.enum for a in self.attrs if a.type == "enum" for v in self.enums[a.enum]}


def pascal(name):
    return "".join(w.capitalize() for w in name.split("_"))


def load(folder):
    """All ops of a schema folder, in file and file order."""
    files = sorted(Path(folder).glob("*.toml"))
    docs = {}
    for file in files:
        try:
            docs[file] = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise SchemaError(f"{file}: {e}") from None
    enums = {}
    for file, doc in docs.items():
        table = doc.pop("enums", {})
        if not isinstance(table, dict):
            raise SchemaError(f"{file}: [enums]: expected a table, got {table!r}")
        for name, values in table.items():
            if not NAME.match(name):
                raise SchemaError(f"{file}: [enums] {name}: enum names are lower-case words joined by _")
            if name in enums:
                raise SchemaError(f"{file}: [enums] {name}: defined twice")
            if (
                not isinstance(values, list)
                or not values
                or not all(isinstance(v, str) and NAME.match(v) for v in values)
            ):
                raise SchemaError(f"{file}: [enums] {name}: expected a list of lower-case names, got {values!r}")
            if len(set(values)) < len(values):
                raise SchemaError(f"{file}: [enums] {name}: a value stands twice in {values!r}")
            enums[name] = values
    ops = [_Reader(file, name, table, enums).op() for file, doc in docs.items() for name, table in doc.items()]
    names = {}
    for op in ops:
        if op.name in names:
            raise SchemaError(f"{op.family}.toml: {op.name}: also defined in {names[op.name]}.toml")
        names[op.name] = op.family
    _check_gradients(ops)
    return ops


class _Reader:
    """One op table; every complaint carries file, op and field."""

    def __init__(self, file, name, table, enums):
        self.file, self.name, self.table, self.enums = file, name, table, enums

    def fail(self, where, message):
        raise SchemaError(
            f"{self.file}: {self.name}.{where}: {message}" if where else f"{self.file}: {self.name}: {message}"
        )

    def op(self):
        if not NAME.match(self.name):
            self.fail("", "op names are lower-case words joined by _")
        if self.name in RESERVED:
            self.fail("", "this name is taken, by a language or by every op")
        if not isinstance(self.table, dict):
            self.fail("", "expected a table")
        for key, value in self.table.items():
            if key not in FIELDS:
                self.fail(key, f"unknown field, expected one of {', '.join(FIELDS)}")
            self.typed(key, value, FIELDS[key])
        for key, kind in (("dims", str), ("require", str), ("since", int), ("dtypes", list)):
            for name, value in self.table.get(key, {}).items():
                self.typed(f"{key}.{name}", value, kind)
        for key, kind in (("alias", str), ("batch", str), ("combos", dict)):
            for i, value in enumerate(self.table.get(key, [])):
                self.typed(f"{key}[{i}]", value, kind)
        for key in ("doc", "bytes", "flops"):
            if key not in self.table:
                self.fail(key, "missing")
        if not self.table.get("out") and not self.table.get("inout"):
            self.fail("out", "expected at least one tensor, here or in inout")
        dtypes = self.table.get("dtypes", {})
        for var, names in dtypes.items():
            if not re.match(r"[A-Z][A-Za-z0-9_]*\Z", var):
                self.fail(f"dtypes.{var}", "a dtype variable starts with a capital letter")
            if var in RESERVED:
                self.fail(f"dtypes.{var}", "this name is taken, by a language")
            if not names:
                self.fail(f"dtypes.{var}", "expected at least one dtype")
            for n in names:
                if not isinstance(n, str) or n not in DTYPES:
                    self.fail(f"dtypes.{var}", f"unknown dtype {n!r}, expected one of {', '.join(DTYPES)}")
        combos = self.table.get("combos", [])
        for i, combo in enumerate(combos):
            if not combo or set(combo) != set(dtypes) or any(combo[v] not in dtypes[v] for v in combo if v in dtypes):
                self.fail(f"combos[{i}]", f"expected one dtype for each of {', '.join(dtypes)}")
        since = self.table.get("since", {})
        tensors = [
            self.tensor(role, n, text, dtypes, since)
            for role in ("in", "inout", "out") for n, text in self.table.get(role, {}).items()
        ]  # fmt: skip
        attrs = [self.attr(n, text, since) for n, text in self.table.get("attrs", {}).items()]
        names = [f.name for f in [*tensors, *attrs]]
        members = names + [f"{t.name}_count" for t in tensors if t.is_list]
        for n in members:
            if members.count(n) > 1:
                self.fail(n, "two arguments have this name")
            if n in RESERVED or re.match(r"reserved\d+\Z", n):
                self.fail(n, "this name is taken, by a language or by every op")
        for n in since:
            if n not in names:
                self.fail(f"since.{n}", "no such argument")
        op = Op(
            self.name, self.file.stem, self.table["doc"], dtypes, combos, tensors, attrs, self.table.get("dims", {}),
            [self.alias(i, a, tensors) for i, a in enumerate(self.table.get("alias", []))],
            self.table.get("require", {}), self.table.get("batch", []), self.table["bytes"], self.table["flops"],
            self.table.get("backward", {}), self.enums,
        )  # fmt: skip
        for where, text in [("doc", op.doc), *((f"require.{e}", sentence) for e, sentence in op.require.items())]:
            if any(c in text for c in ('"', "\\", "/*", "*/")) or not text.isprintable():
                self.fail(where, 'a text stands in C strings and comments: no ", \\, /*, */ or line break')
        self.check_names(op)
        return op

    def typed(self, where, value, kind):
        if not isinstance(value, kind):
            self.fail(where, f"expected {KINDS[kind]}, got {value!r}")

    def tensor(self, role, name, text, dtypes, since):
        where = f"{role}.{name}"
        if not NAME.match(name):
            self.fail(where, "argument names are lower-case words joined by _")
        match = TENSOR.match(text) if isinstance(text, str) else None
        if not match:
            self.fail(where, f"expected e.g. 'T[..., dim]', 'f32[...]?', 'list P[...]', got {text!r}")
        is_list, dtype, dims, optional, words = match.groups()
        if dtype not in dtypes and dtype not in DTYPES:
            self.fail(where, f"{dtype!r} is neither a dtype variable ({', '.join(dtypes) or 'none'}) nor a dtype")
        parsed = [int(d) if re.match(r"[0-9]{1,9}\Z", d) else d for d in (d.strip() for d in dims.split(",")) if d]
        for d in parsed:
            if isinstance(d, str) and d != "..." and not NAME.match(d):
                self.fail(where, f"{d!r} is not a dimension: a name, an integer or ...")
        if parsed.count("...") > 1:
            self.fail(where, "... may stand once")
        if len(parsed) > MAX_DIMS:
            self.fail(where, f"more than {MAX_DIMS} dimensions")
        for w in words.split():
            if w not in ("strided", "host"):
                self.fail(where, f"unknown word {w!r}, expected strided or host")
        return Tensor(
            name, role, dtype, parsed, bool(optional), "strided" in words.split(), "host" in words.split(), bool(is_list),
            since.get(name, 0),
        )  # fmt: skip

    def attr(self, name, text, since):
        where = f"attrs.{name}"
        if not NAME.match(name):
            self.fail(where, "argument names are lower-case words joined by _")
        kind, _, default = (s.strip() for s in text.partition("=")) if isinstance(text, str) else ("", "", "")
        enum = ""
        if kind.startswith("enum "):
            kind, enum = "enum", kind[5:].strip()
            if enum not in self.enums:
                self.fail(where, f"unknown enum {enum!r}, expected one of {', '.join(self.enums)}")
            if default not in self.enums[enum]:
                self.fail(where, f"default {default!r} is not a value of {enum}: {', '.join(self.enums[enum])}")
        elif kind not in ATTR_TYPES or not default:
            self.fail(
                where, f"expected '<type> = <default>' with type {', '.join(ATTR_TYPES)} (enum <name>), got {text!r}"
            )
        elif kind == "bool":
            if default not in ("true", "false"):
                self.fail(where, f"a bool defaults to true or false, not {default!r}")
            default = default == "true"
        else:
            try:
                default = float(default) if kind[0] == "f" else int(default)
            except ValueError:
                self.fail(where, f"default {default!r} is not a {kind}")
            if kind[0] == "i" and not -(2 ** (int(kind[1:]) - 1)) <= default < 2 ** (int(kind[1:]) - 1):
                self.fail(where, f"default {default} is not a {kind}")
            if kind[0] == "f" and not abs(default) <= MAX_FLOAT[kind]:
                self.fail(where, f"default {default} is not a finite {kind}")
        return Attr(name, kind, default, enum, since.get(name, 0))

    def alias(self, i, text, tensors):
        out, _, src = (s.strip() for s in text.partition(":"))
        outs = [t.name for t in tensors if t.role != "in"]
        if out not in outs or src not in [t.name for t in tensors if t.role == "in"]:
            self.fail(f"alias[{i}]", f"expected '<output>: <input>', got {text!r}")
        return out, src

    def check_names(self, op):
        """Every name in every expression must mean something."""
        bound = {d for t in op.tensors for d in t.dims if isinstance(d, str)}
        attrs, tensors = {a.name for a in op.attrs}, {t.name for t in op.tensors}
        for d in op.dim_names:
            if not NAME.match(d):
                self.fail(f"dims.{d}", "dimension names are lower-case words joined by _")
            if d in RESERVED or d in attrs | tensors | set(op.enum_values):
                self.fail(f"dims.{d}", "this name is taken: by an argument, a value, a language or every op")
        for b in op.batch:
            if b not in bound | set(op.dims):
                self.fail("batch", f"{b!r} is not a dimension of a tensor, and not derived")
        known = (set(op.dim_names) - set(op.dims)) | attrs | set(op.enum_values)
        known |= {"rows"} if op.has_lead else set()
        last = {"last_lead"} if any(t.lead >= 0 and not t.optional and not t.is_list for t in op.tensors) else set()
        for d, text in op.dims.items():
            self.check_expression(op, f"dims.{d}", text, known)
            known.add(d)  # derived in this order: each may name those before it
        for text in op.require:
            self.check_expression(op, "require", text, known | last)
        self.check_outputs(op)
        for where in ("bytes", "flops"):
            self.check_expression(op, where, getattr(op, where), known | ({"elements"} if op.has_list else set()))

    def check_outputs(self, op):
        """Bindings allocate outputs like the required inputs, so their dims must follow from these. Without any, and in
        lists, outputs are always the caller's."""
        sources = [t for t in op.tensors if t.role != "out" and not t.optional and not t.is_list]
        given = {d for t in sources for d in t.dims}

        def follows(d):
            if d not in op.dims or d in given:
                return isinstance(d, int) or d in given
            names = {n.id for n in ast.walk(parse_expression(op.dims[d])) if isinstance(n, ast.Name)}
            return all(follows(n) for n in names & {*op.dim_names, "rows"})

        for t in op.tensors:
            for d in t.dims:
                if sources and t.role == "out" and not t.is_list and not follows(d):
                    self.fail(f"out.{t.name}", f"{d} is no dimension of a required input and does not follow from one")

    def check_expression(self, op, where, text, known):
        try:
            tree = parse_expression(text)
        except (SyntaxError, ValueError, RecursionError):
            self.fail(where, f"not an expression: {text!r}")
        if where != "require" and _is_float(op, tree):
            self.fail(where, f"a float in {text!r}, expected an integer")
        inner = set()  # what has() and sizeof() are asked about, which is no number by itself
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) or isinstance(getattr(node, "op", None), (ast.FloorDiv, ast.Mod)):
                if _is_float(op, node):
                    self.fail(where, f"a float in {ast.unparse(node)!r}, expected integers")
            if isinstance(node, ast.Call):
                inner.add(id(node.func))
                if node.func.id not in ("has", "sizeof"):
                    continue
                inner.add(id(node.args[0]))
                arg = node.args[0].id if isinstance(node.args[0], ast.Name) else None
                if node.func.id == "has" and arg not in [t.name for t in op.tensors if t.optional]:
                    self.fail(where, f"has({arg}): not an optional tensor")
                if node.func.id == "sizeof" and arg not in op.dtypes and arg not in DTYPES:
                    self.fail(where, f"sizeof({arg}): not a dtype")
            elif isinstance(node, ast.Name) and id(node) not in inner and node.id not in known:
                if node.id in op.dtypes or node.id in DTYPES:
                    self.fail(where, f"{node.id!r} in {text!r} is a dtype, no number: sizeof({node.id})")
                later = " (derived further down)" if node.id in op.dims else ""
                self.fail(where, f"unknown name {node.id!r} in {text!r}{later}")


def _is_float(op, node):
    """Whether a number in an expression is one; C would cut it where Python keeps it."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, float)
        case ast.Name(id=name):
            return any(a.name == name and a.type in MAX_FLOAT for a in op.attrs)
        case ast.BinOp(left=a, right=b) | ast.IfExp(body=a, orelse=b):
            return _is_float(op, a) or _is_float(op, b)
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return _is_float(op, a)
        case ast.Call(args=args):
            return any(_is_float(op, a) for a in args)
    return False


def parse_expression(text):
    """A Python expression of the small kind the schema allows; SyntaxError for anything else."""
    tree = ast.parse(str(text), mode="eval").body
    allowed = (
        ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
        ast.Gt, ast.GtE, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.IfExp, ast.Name, ast.Load,
        ast.Constant, ast.Call,
    )  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise SyntaxError(text)
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name not in FUNCTIONS or len(node.args) != FUNCTIONS[name] or node.keywords:
                raise SyntaxError(text)
        if isinstance(node, ast.Constant) and (
            type(node.value) not in MAX_VALUE or node.value > MAX_VALUE[type(node.value)]
        ):
            raise SyntaxError(text)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:  # C reads a < b < c another way
            raise SyntaxError(text)
    return tree


def _check_gradients(ops):
    by_name = {op.name: op for op in ops}
    for op in ops:
        if not op.backward:
            continue
        where = f"{op.family}.toml: {op.name}.backward"
        for key in op.backward:
            if key not in ("op", "args", "grads"):
                raise SchemaError(f"{where}.{key}: unknown field, expected one of op, args, grads")
            if not isinstance(op.backward[key], str if key == "op" else dict):
                raise SchemaError(f"{where}.{key}: expected {'a text' if key == 'op' else 'a table'}")
        target = by_name.get(op.backward.get("op"))
        if target is None:
            raise SchemaError(f"{where}: no op {op.backward.get('op')!r}")
        mine = {f.name for f in op.fields}
        theirs = {f.name for f in target.fields}
        for key in ("args", "grads"):
            for arg, source in op.backward.get(key, {}).items():
                if not isinstance(source, str):
                    raise SchemaError(f"{where}.{key}.{arg}: expected a text, got {source!r}")
        for arg, source in op.backward.get("args", {}).items():
            inner = re.match(r"grad\((\w+)\)\Z", source)
            if arg not in theirs:
                raise SchemaError(f"{where}.args.{arg}: {target.name} has no such argument")
            if (inner.group(1) if inner else source) not in mine:
                raise SchemaError(f"{where}.args.{arg}: {op.name} has no {source!r}")
        for arg, grad in op.backward.get("grads", {}).items():
            if arg not in mine or grad not in theirs:
                raise SchemaError(f"{where}.grads.{arg}: expected an input of {op.name} = an output of {target.name}")
