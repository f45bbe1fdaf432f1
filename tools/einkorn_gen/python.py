# SPDX-License-Identifier: Apache-2.0
"""The Python package's generated part: what the extension needs to fill args structs (src/ops_gen.h), one typed function
for each op (einkorn/ops_gen.py) and the schema as data for tests, bench and tools (einkorn/_schema_gen.py)."""

import ast

from .c_api import BANNER, struct_size, wrap
from .schema import DTYPES, Tensor, parse_expression, pascal

FOLDER = "bindings/python"
KINDS = {"f32": "kF32", "f64": "kF64", "i32": "kI32", "i64": "kI64", "bool": "kBool", "enum": "kEnum"}
HINTS = {"f32": "float", "f64": "float", "i32": "int", "i64": "int", "bool": "bool"}


def generate(ops):
    return {
        f"{FOLDER}/src/ops_gen.h": _descriptors(ops),
        f"{FOLDER}/einkorn/ops_gen.py": _functions(ops),
        f"{FOLDER}/einkorn/_schema_gen.py": _schema(ops),
    }


# ---- src/ops_gen.h --------------------------------------------------------------------------------------------------


def _names(names):
    return ", ".join(f'"{n}"' for n in names)


def _field(op, f):
    args = f"ek_{op.name}_args"
    if isinstance(f, Tensor):
        kind = "kTensorList" if f.is_list else "kTensor"
        count = f"offsetof({args}, {f.name}_count)" if f.is_list else "0"
        flags = ", ".join("true" if flag else "false" for flag in (f.role != "in", f.host))
        return f'{{"{f.name}", Kind::{kind}, {flags}, offsetof({args}, {f.name}), {count}, nullptr}},'
    values = f"k{pascal(f.enum)}" if f.type == "enum" else "nullptr"
    return f'{{"{f.name}", Kind::{KINDS[f.type]}, false, false, offsetof({args}, {f.name}), 0, {values}}},'


def _descriptors(ops):
    enums = ops[0].enums if ops else {}
    out = [
        f"// SPDX-License-Identifier: Apache-2.0\n// {BANNER}\n#pragma once\n\n#include <einkorn/ops.h>\n\n"
        '#include "fields.h"\n\n// clang-format off\nnamespace ekpy {\n'
    ]
    for name, values in enums.items():
        out.append(f"const char* const k{pascal(name)}[] = {{{_names(values)}, nullptr}};")
    for op in ops:
        name = pascal(op.name)
        out.append(f"\nconst ek_{op.name}_args k{name}Defaults = EK_{op.name.upper()}_ARGS;")
        out.append(f"const Field k{name}Fields[] = {{")
        out += [f"    {_field(op, f)}" for f in op.fields]
        out.append("};")
    out.append("\nconst OpInfo kOps[] = {")
    for op in ops:
        args, name = f"ek_{op.name}_args", pascal(op.name)
        out.append(f'    {{"{op.name}", k{name}Fields, {len(op.fields)}, &k{name}Defaults, sizeof({args}),')
        out.append(f"     call_op<{args}, ek_{op.name}>, workspace_op<{args}, ek_{op.name}_workspace>}},")
    out.append("};")
    most = max((sum(isinstance(f, Tensor) for f in op.fields) for op in ops), default=1)
    largest = max(ops, key=struct_size)
    out.append(f"constexpr size_t kOpCount = {len(ops)};\nconstexpr int kMaxTensors = {most};")
    out.append(f"constexpr size_t kMaxArgsBytes = sizeof(ek_{largest.name}_args);")
    out.append("\n}  // namespace ekpy\n// clang-format on\n")
    return "\n".join(out)


# ---- expressions ------------------------------------------------------------------------------------------------------


class _Python(ast.NodeTransformer):
    """Schema expression -> Python: enum values become strings; the rest as the two callbacks say."""

    def __init__(self, op, name, has):
        self.enums, self.name, self.has = op.enum_values, name, has
        self.taken = set(op.dim_names) | {a.name for a in op.attrs}

    def visit_Call(self, node):
        if node.func.id == "has":
            return ast.parse(self.has(node.args[0].id), mode="eval").body
        if node.func.id == "sizeof":
            node.args = [ast.Constant(a.id) if a.id in DTYPES else a for a in node.args]
            return node
        node.args = [self.visit(a) for a in node.args]
        return node

    def visit_Name(self, node):
        if node.id in self.enums and node.id not in self.taken:
            return ast.Constant(node.id)
        return ast.Name(self.name(node.id), ast.Load())


def _expression(op, text, name=lambda n: n, has=lambda t: f"'{t}' in has"):
    return _quote(ast.unparse(_Python(op, name, has).visit(parse_expression(text))))


def _quote(text):
    return text.replace("'", '"')


# ---- einkorn/ops_gen.py -----------------------------------------------------------------------------------------------

HEAD = f'''# SPDX-License-Identifier: Apache-2.0
# {BANNER}
"""One function for each op. Inputs come first, outputs are keywords: an output that is not given is allocated like the
inputs and returned; an optional one is left out unless it is given, or True to have it allocated. `ctx` is the
einkorn.Context to run on; None: the one in `with einkorn.use(...)`, else this thread's own for the tensors' device."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ._native import call as _call
from ._tensor import Unfit as _Unfit
from ._tensor import ceil_div as _ceil_div
from ._tensor import dtype_name_or_none as _name
from ._tensor import new as _new
from ._tensor import output_dtype as _dtype
from ._tensor import results as _results

if TYPE_CHECKING:
    from ._context import Context

Tensor = Any  # a NumPy array, a torch tensor, an einkorn.DeviceArray, or anything with __dlpack__
'''


class _Function:
    """One op as a Python function."""

    def __init__(self, index, op):
        self.index, self.op = index, op
        fixed = [t for t in op.tensors if t.role != "out" and not t.optional]
        self.required = [t for t in fixed if t.role == "in"] + [t for t in fixed if t.role == "inout"]
        self.optional = [t for t in op.tensors if t.role != "out" and t.optional]
        self.outputs = [t for t in op.tensors if t.role == "out"]
        self.sources = [t for t in self.required if not t.is_list]
        given = {t.dtype for t in self.required}
        made = dict.fromkeys(t.dtype for t in self.outputs if self.allocated(t))
        self.free = [v for v in made if v in op.dtypes and v not in given]
        # Free variables that an optional input may give: without it, and without dtype=, they are as the first input.
        self.by_option = {t.dtype: t.name for t in reversed(self.optional) if t.dtype in self.free}

    def dtype_param(self, variable):
        return "dtype" if len(self.free) == 1 else f"{variable.lower()}_dtype"

    def allocated(self, t):
        """Whether None means: allocate. Lists have no shape to go by, so they are always the caller's."""
        return not t.is_list and bool(self.sources)

    # -- the signature

    def signature(self):
        params = [f"{t.name}: {self.hint(t)}" for t in self.required]
        params += [f"{t.name}: {self.hint(t)} | None = None" for t in self.optional]
        params.append("*")
        for a in self.op.attrs:
            hint = pascal(a.enum) if a.type == "enum" else HINTS[a.type]
            default = f'"{a.default}"' if a.type == "enum" else repr(a.default)
            params.append(f"{a.name}: {hint} = {default}")
        params += [f"{self.dtype_param(v)}: Any = None" for v in self.free]
        for t in self.outputs:
            if not self.allocated(t):
                params.append(f"{t.name}: {self.hint(t)}{' | None = None' if t.optional else ''}")
            else:
                params.append(f"{t.name}: {self.hint(t)} |{' bool |' * t.optional} None = None")
        params.append("ctx: Context | None = None")
        one = f"def {self.op.name}({', '.join(params)}) -> Any:"
        if len(one) <= 120:
            return one
        return f"def {self.op.name}(\n" + "".join(f"    {p},\n" for p in params) + ") -> Any:"

    def hint(self, t):
        return "list[Tensor]" if t.is_list else "Tensor"

    def doc(self):
        lines = [wrap(self.op.doc, 112, "    "), ""]
        lines += [f"    {t.name}: {t.role} {t.text}" for t in [*self.required, *self.optional, *self.outputs]]
        kinds = "; ".join(f"{v}: {', '.join(names)}" for v, names in self.op.dtypes.items())
        lines.append(f"    {kinds}")
        for v in self.free:
            else_as = f"; None: as {self.by_option[v]} or {self.sources[0].name}" if v in self.by_option else ""
            lines.append(f"    {self.dtype_param(v)}: {v}, where no output of that dtype is given{else_as}")
        if self.op.alias:
            lines.append(f"    in place: {', '.join(f'{o} may be {i}' for o, i in self.op.alias)}")
        return '    """' + "\n".join(lines) + '\n    """'

    # -- the body

    def body(self):
        out = []
        for t in self.outputs:
            if not self.allocated(t):
                continue
            out.append(f"        if {self.condition(t)}:")
            dims, shape = self.shape(t)
            out += [f"            {line}" for line in dims]
            like, option = self.like(t).name, self.by_option.get(t.dtype)
            like = f"{like} if {option} is None else {option}" if option else like
            out.append(f"            {t.name} = _new({like}, {shape}, {self.dtype(t)})")
        if out:
            out = [
                "    try:",
                *out,
                "    except _Unfit:\n        pass  # an input that the call refuses, in better words",
            ]
        fields = ", ".join(f.name for f in self.op.fields)
        out.append(f"    _call({self.index}, ctx, {fields})")
        results = self.outputs or [t for t in self.required if t.role == "inout"]
        names = ", ".join(t.name for t in results)
        out.append(f"    return _results({names})" if any(t.optional for t in results) else f"    return {names}")
        return "\n".join(out)

    def condition(self, t):
        """When to allocate: always without one for a required output; where a `require` ties an optional one to the
        other arguments, exactly then."""
        if not t.optional:
            return f"{t.name} is None"
        for text in self.op.require:
            # has(t) == (<attributes>)
            left, equals, right = ast.unparse(parse_expression(text)).partition(" == ")
            if left == f"has({t.name})" and equals and "has(" not in right:
                return f"{t.name} is True or ({t.name} is None and {_expression(self.op, right)})"
        return f"{t.name} is True"

    def like(self, t):
        return next((s for s in self.sources if s.dtype == t.dtype), self.sources[0])

    def dtype(self, t):
        if t.dtype in self.by_option:
            return f"_name({self.dtype_param(t.dtype)})"
        if t.dtype in self.free:
            return f'_dtype({self.dtype_param(t.dtype)}, "{self.op.name}", "{self.dtype_param(t.dtype)}", "{t.name}")'
        return "None" if self.like(t).dtype == t.dtype else f'"{t.dtype}"'

    def shape(self, t):
        """Lines that compute derived dims, and the shape itself; None: that of the tensor it is made like."""
        if self.like(t).dims == t.dims:
            return [], "None"
        same = next((s for s in self.sources if s.dims == t.dims), None)
        if same:
            return [], f"{same.name}.shape"
        if t.dims == ["..."]:
            return [], self.lead()
        lines = []
        parts = [f"*{self.lead()}" if d == "..." else self.dim(d, lines) for d in t.dims]
        return list(dict.fromkeys(lines)), f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def lead(self):
        t = next(s for s in self.sources if s.lead >= 0)
        after = len(t.dims) - t.lead - 1
        return f"{t.name}.shape[{t.lead or ''}:{-after if after else ''}]" if t.lead or after else f"{t.name}.shape"

    def dim(self, name, lines):
        """A dim as an expression; lines gets what has to be computed before."""
        if isinstance(name, int):
            return str(name)
        for t in self.sources:
            if name in t.dims:
                i = t.dims.index(name)
                return f"{t.name}.shape[{i if t.lead < 0 or i < t.lead else i - len(t.dims)}]"
        text = self.op.dims[name]
        names = {n.id for n in ast.walk(parse_expression(text)) if isinstance(n, ast.Name)} & set(self.op.dim_names)
        inner = {n: self.dim(n, lines) for n in sorted(names)}
        call = {"ceil_div": "_ceil_div"}  # helpers carry an underscore there: no argument can hide them
        code = _expression(self.op, text, lambda n: inner.get(n, call.get(n, n)), lambda t: f"{t} is not None")
        for helper, private in call.items():
            code = code.replace(f"{helper}(", f"{private}(")
        lines.append(f"_{name} = {code}")
        return f"_{name}"

    def text(self):
        return f"{self.signature()}\n{self.doc()}\n{self.body()}\n"


def _functions(ops):
    out = [HEAD]
    for name, values in (ops[0].enums if ops else {}).items():
        out.append(f"{pascal(name)} = Literal[{_names(values)}]")
    names = _names(op.name for op in ops)
    out.append(f"\n__all__ = [\n    {wrap(names, 112, '    ')},\n]\n")
    for i, op in enumerate(ops):
        out.append("\n" + _Function(i, op).text())
    return "\n".join(out)


# ---- einkorn/_schema_gen.py -------------------------------------------------------------------------------------------


def _schema(ops):
    out = [
        f"# SPDX-License-Identifier: Apache-2.0\n# {BANNER}\n"
        '"""schema/ as data: what einkorn.schema makes objects of. Expressions are Python, enum values strings."""\n\n'
        "# fmt: off\n# ruff: noqa: E501\n"
    ]
    dtypes = ", ".join(f'"{n}": ({code}, {bits})' for n, (code, bits) in DTYPES.items())
    out.append(f"DTYPES = {{{dtypes}}}  # name -> DLPack code, bits\n")
    out.append(f"ENUMS = {_quote(repr(ops[0].enums if ops else {}))}\n\nOPS = {{")
    for op in ops:
        out.append(f'    "{op.name}": {{')
        rows = {
            "family": op.family,
            "dtypes": op.dtypes,
            "combos": op.combos,
            "alias": op.alias,
            "batch": op.batch,
            "backward": op.backward,
        }
        out.append(f'        "doc": {_string(op.doc)},')
        out += [f'        "{k}": {_quote(repr(v))},' for k, v in rows.items()]
        # Name, role, dtype, dims, then what holds of: optional strided host list.
        out.append('        "tensors": [')
        for t in op.tensors:
            words = {"optional": t.optional, "strided": t.strided, "host": t.host, "list": t.is_list}
            flags = " ".join(w for w, on in words.items() if on)
            out.append(f'            ("{t.name}", "{t.role}", "{t.dtype}", {_quote(repr(t.dims))}, "{flags}"),')
        out.append("        ],")
        attrs = [(a.name, a.type, a.default, a.enum) for a in op.attrs]
        out.append(f'        "attrs": {_quote(repr(attrs))},')
        out.append(f'        "fields": {_quote(repr([f.name for f in op.fields]))},')
        dims = {d: _expression(op, text) for d, text in op.dims.items()}
        require = {_expression(op, e): sentence for e, sentence in op.require.items()}
        out.append(f'        "dims": {_strings(dims)},')
        out.append(f'        "require": {_strings(require)},')
        out.append(f'        "bytes": {_string(_expression(op, op.bytes))},')
        out.append(f'        "flops": {_string(_expression(op, op.flops))},')
        out.append("    },")
    out.append("}\n")
    return "\n".join(out)


def _string(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" if '"' in text else f'"{text}"'


def _strings(table):
    return "{" + ", ".join(f"{_string(k)}: {_string(v)}" for k, v in table.items()) + "}"
