# SPDX-License-Identifier: Apache-2.0
"""src/dispatch/ops_gen.h (checked arguments as kernels see them) and <family>_gen.cpp (specs and entry points)."""

import ast

from .c_api import BANNER, enum_constant, first_struct_size, members, struct_size
from .schema import parse_expression, pascal

ARG_TYPES = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "bool", "enum": "int32_t"}
ISAS = ("v4", "v3", "v2")
BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def dtype_constant(name):
    return f"EK_DTYPE_{name.upper()}"


def to_cpp(op, text):
    """A schema expression as C++ over `a`, the op's checked args. Integers are int64_t; division by zero gives 0."""
    values = op.enum_values
    attrs = {f.name: f for f in op.attrs}

    def emit(n):
        match n:
            case ast.Constant(value=v):
                return f"{v!r}f" if isinstance(v, float) else f"int64_t{{{v}}}"
            case ast.Name(id="last_lead"):
                t = next(t for t in op.tensors if t.lead >= 0 and not t.optional and not t.is_list)
                return f"(a.lead ? a.{t.name}.shape[a.lead - 1{f' + {t.lead}' if t.lead else ''}] : int64_t{{1}})"
            case ast.Name(id=name):
                if name in values and name not in attrs:
                    return enum_constant(values[name], name)
                return f"a.{name}"
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                return f"floor_div({emit(left)}, {emit(right)})"
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                return f"remainder({emit(left)}, {emit(right)})"
            case ast.BinOp(left=left, op=o, right=right):
                return f"({emit(left)} {BINARY[type(o)]} {emit(right)})"
            case ast.Compare(left=left, ops=[o], comparators=[right]):
                return f"({emit(left)} {COMPARE[type(o)]} {emit(right)})"
            case ast.BoolOp(op=o, values=parts):
                return "(" + (" && " if isinstance(o, ast.And) else " || ").join(emit(p) for p in parts) + ")"
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return f"!{emit(x)}"
            case ast.UnaryOp(op=ast.USub(), operand=x):
                return f"-{emit(x)}"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({emit(test)} ? {emit(body)} : {emit(orelse)})"
            case ast.Call(func=ast.Name(id="has"), args=[ast.Name(id=name)]):
                return f"present(a.{name})"
            case ast.Call(func=ast.Name(id="sizeof"), args=[ast.Name(id=name)]):
                return f"int64_t{{dtype_bytes({'a.' + name if name in op.dtypes else dtype_constant(name)})}}"
            case ast.Call(func=ast.Name(id=name), args=args):
                call = {"min": "least", "max": "most"}.get(name, name)
                return f"{call}({', '.join(emit(x) for x in args)})"
        raise ValueError(f"{op.name}: chained comparison or unknown expression: {text}")

    return emit(parse_expression(text))


def _args_struct(op):
    lines = [f"struct {pascal(op.name)}Args {{"]
    for t in op.tensors:
        kind = "TensorList" if t.is_list else "Tensor"
        lines.append(f"  {kind} {t.name};  // {t.role} {t.text}")
    for a in op.attrs:
        note = f"  // EK_{a.enum.upper()}_*" if a.enum else ""
        lines.append(f"  {ARG_TYPES[a.type]} {a.name};{note}")
    for v in op.dtypes:
        lines.append(f"  ek_dtype {v};")
    if op.has_lead:
        lines.append("  int32_t lead;   // leading dims\n  int64_t rows;   // their product")
    if op.dim_names:
        lines.append(f"  int64_t {', '.join(op.dim_names)};")
    return "\n".join([*lines, "};\n"])


def args_header(ops):
    out = [
        f"// SPDX-License-Identifier: Apache-2.0\n// {BANNER}\n"
        "// The checked arguments of every op, as its kernels see them, and the tables that the kernel files end in.\n"
        '#pragma once\n\n#include "dispatch/kernel.h"\n#include "einkorn/ops.h"\n\n// clang-format off\nnamespace ek {\n'
    ]
    out += [_args_struct(op) for op in ops]
    for name in ["cpu_" + i for i in ISAS] + ["cpu_base"]:
        out.append(f"namespace {name} {{")
        out += [f"extern const Kernel<{pascal(op.name)}Args> k{pascal(op.name)}Cpu[];" for op in ops]
        out.append("}")
    out += [f"extern const Kernel<{pascal(op.name)}Args> k{pascal(op.name)}Cuda[];" for op in ops]
    out.append("\n}  // namespace ek\n// clang-format on\n")
    return "\n".join(out)


def _tensor_spec(op, t, dims, variables):
    flags = [
        f
        for f, on in [("kOptional", t.optional), ("kStrided", t.strided), ("kHost", t.host), ("kList", t.is_list)]
        if on
    ]
    entries = ", ".join(str(-1 - d) if isinstance(d, int) else str(dims.index(d)) for d in t.dims if d != "...")
    dtype = f"{variables.index(t.dtype)}, 0" if t.dtype in variables else f"-1, {dtype_constant(t.dtype)}"
    public, args = f"ek_{op.name}_args", f"{pascal(op.name)}Args"
    return (
        f'    {{"{t.name}", offsetof({public}, {t.name}), offsetof({args}, {t.name}), k{t.role.capitalize()}, '
        f"{' | '.join(flags) or 0}, {dtype}, {len(t.dims) - (t.lead >= 0)}, {t.lead}, {{{entries or 0}}}}},"
    )


def _spec(op):
    cls, public = pascal(op.name), f"ek_{op.name}_args"
    args = f"{cls}Args"
    dims, variables, names = op.dim_names, list(op.dtypes), [t.name for t in op.tensors]
    out = [f"// ---- {op.name}"]

    def array(kind, suffix, rows):
        if not rows:
            return "nullptr, 0"
        out.append(f"constexpr {kind} k{cls}{suffix}[] = {{\n" + "\n".join(rows) + "\n};")
        return f"k{cls}{suffix}, {len(rows)}"

    out.append(f"constexpr {public} k{cls}Defaults = EK_{op.name.upper()}_ARGS;")
    tensors = array("TensorSpec", "Tensors", [_tensor_spec(op, t, dims, variables) for t in op.tensors])
    rows = []
    for d in dims:
        flags = f"{str(d in op.dims).lower()}"
        rows.append(f'    {{"{d}", offsetof({args}, {d}), {flags}}},')
    dim_specs = array("DimSpec", "Dims", rows)
    rows = []
    for v, allowed in op.dtypes.items():
        rows.append(
            f'    {{"{v}", offsetof({args}, {v}), {len(allowed)}, {{{", ".join(dtype_constant(d) for d in allowed)}}}}},'
        )
    dtypes = array("DtypeSpec", "Dtypes", rows)
    flat = [f"    {', '.join(dtype_constant(c[v]) for v in variables)}," for c in op.combos]
    combos = array("ek_dtype", "Combos", flat).split(",")[0]
    rows = []
    for a in op.attrs:
        values = f"kEnum{pascal(a.enum)}, {len(op.enums[a.enum])}" if a.enum else "nullptr, 0"
        kind = f"kAttr{a.type.capitalize()}"
        rows.append(f'    {{"{a.name}", offsetof({public}, {a.name}), offsetof({args}, {a.name}), {kind}, {values}}},')
    attrs = array("AttrSpec", "Attrs", rows)
    alias = array("AliasSpec", "Alias", [f"    {{{names.index(o)}, {names.index(i)}}}," for o, i in op.alias])

    derive = require = "nullptr"
    if op.dims:
        derive = f"derive_{op.name}"
        out.append(f"static void {derive}(void* args) {{\n  {args}& a = *static_cast<{args}*>(args);")
        out += [f"  a.{d} = {to_cpp(op, e)};" for d, e in op.dims.items()]
        out.append("}")
    if op.require:
        require = f"require_{op.name}"
        array("Requirement", "Require", [f'    {{"{s}", " {" ".join(_names(e))} "}},' for e, s in op.require.items()])
        out.append(
            f"static const Requirement* {require}(const void* args) {{\n"
            f"  const {args}& a = *static_cast<const {args}*>(args);"
        )
        out += [f"  if (!({to_cpp(op, e)})) return &k{cls}Require[{i}];" for i, e in enumerate(op.require)]
        out.append("  return nullptr;\n}")
    lead = f"offsetof({args}, lead), offsetof({args}, rows)" if op.has_lead else "-1, -1"
    out.append(
        f"extern const OpSpec k{cls}Spec;\n"
        f'const OpSpec k{cls}Spec = {{"{op.name}", &k{cls}Defaults, {struct_size(op)}, {first_struct_size(op)}, '
        f"{tensors}, {dim_specs}, {dtypes}, {combos}, {len(op.combos)}, {attrs}, {alias}, {lead}, {derive}, {require}}};"
    )
    out.append(f'static_assert(sizeof({public}) == {struct_size(op)}, "the ABI of {op.name} changed");')
    for m in members(op):
        if m.name not in ("struct_size",) and not m.name.startswith("reserved"):
            out.append(f'static_assert(offsetof({public}, {m.name}) == {m.offset}, "the ABI of {op.name} changed");')
    out.append(_tables(op))
    return "\n".join(out) + "\n"


def _names(expression):
    """The names in it, each once, but for what has() and sizeof() are asked about."""
    nodes = list(ast.walk(parse_expression(expression)))
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    inner = {id(x) for c in calls for x in [c.func, *(c.args if c.func.id in ("has", "sizeof") else [])]}
    return dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in inner)


def _tables(op):
    cls = pascal(op.name)
    args = f"{cls}Args"
    return (
        f"extern const DimField k{cls}Fields[];\nconst DimField k{cls}Fields[] = {{\n"
        + "\n".join(_fields(op, args))
        + "\n};\n"
        f"const Kernel<{args}>* const k{cls}Rows[] = {{EK_ROWS({cls})}};\n"
    )


def _fields(op, args):
    """What routing rules and logs can name: dtype variables, rows, dims, integer attributes."""
    fields = [f'    {{"{v}", offsetof({args}, {v}), FieldKind::kDtype, false, nullptr}},' for v in op.dtypes]
    dims = (["rows"] if op.has_lead else []) + op.dim_names
    for d in dims:
        flag = str(d in op.batch_dims).lower()
        fields.append(f'    {{"{d}", offsetof({args}, {d}), FieldKind::kInt64, {flag}, nullptr}},')
    kinds = {"i32": "kInt32", "i64": "kInt64", "enum": "kInt32", "bool": "kBool"}
    for a in op.attrs:
        if a.type in kinds:
            values = f"kEnum{pascal(a.enum)}" if a.enum else "nullptr"
            fields.append(
                f'    {{"{a.name}", offsetof({args}, {a.name}), FieldKind::{kinds[a.type]}, false, {values}}},'
            )
    return fields


def family_source(family, ops):
    """Specs, tables and entry points of one family."""
    mine = [(i, op) for i, op in enumerate(ops) if op.family == family]
    out = [
        f"// SPDX-License-Identifier: Apache-2.0\n// {BANNER}\n// The argument specs and entry points of the {family} family.\n"
        '#include <cstddef>\n\n#include "dispatch/entry.h"\n#include "dispatch/ops_gen.h"\n'
        "\n// clang-format off\nnamespace ek {\nnamespace {\n"
    ]
    for e in dict.fromkeys(a.enum for _, op in mine for a in op.attrs if a.enum):
        values = ", ".join(f'"{v}"' for v in mine[0][1].enums[e])
        out.append(f"constexpr const char* kEnum{pascal(e)}[] = {{{values}, nullptr}};")
    out.append("\n}  // namespace\n")
    for index, op in mine:
        cls = pascal(op.name)
        out.append(_spec(op))
        out.append(
            f"extern const OpTables<{cls}Args> k{cls}Tables;\n"
            f'const OpTables<{cls}Args> k{cls}Tables = {{"{op.name}", {index}, k{cls}Rows, k{cls}Fields, '
            f"{len(_fields(op, ''))}}};\n"
        )
    out.append("}  // namespace ek\n")
    for _, op in mine:
        cls = pascal(op.name)
        out.append(
            f"ek_status ek_{op.name}(ek_context* context, const ek_{op.name}_args* args) {{\n"
            f"  return ek::call(context, ek::k{cls}Spec, ek::k{cls}Tables, args);\n}}\n"
            f"ek_status ek_{op.name}_workspace(ek_context* context, const ek_{op.name}_args* args, size_t* bytes_out) {{\n"
            f"  return ek::call_workspace(context, ek::k{cls}Spec, ek::k{cls}Tables, args, bytes_out);\n}}"
        )
    out.append("// clang-format on\n")
    return "\n".join(out)


def registry_source(ops):
    out = [
        f"// SPDX-License-Identifier: Apache-2.0\n// {BANNER}\n// Every op by name, in the order of ek_op_name().\n"
        '#include "dispatch/entry.h"\n#include "dispatch/ops_gen.h"\n\n// clang-format off\nnamespace ek {\n'
    ]
    entries = []
    for op in ops:
        cls = pascal(op.name)
        out.append(
            f"extern const OpTables<{cls}Args> k{cls}Tables;\nextern const OpSpec k{cls}Spec;\nextern const DimField k{cls}Fields[];"
        )
        t = f"k{cls}Tables"
        entries.append(
            f'    {{"{op.name}", count_rows<{cls}Args, {t}>, row_of<{cls}Args, {t}>, '
            f"explain_public<{cls}Args, {t}, k{cls}Spec>, k{cls}Fields, {len(_fields(op, ''))}}},"
        )
    body = "\n".join(entries)
    out.append(
        f"\nconst OpEntry kOps[] = {{\n{body}\n}};\nconst int kOpCount = {len(ops)};\n\n}}  // namespace ek\n// clang-format on\n"
    )
    return "\n".join(out)


def tables_source(tables):
    out = [
        f"// SPDX-License-Identifier: Apache-2.0\n// {BANNER}\n// The measured routing tables of src/dispatch/tables/.\n"
        '#include "dispatch/table.h"\n\n// clang-format off\nnamespace ek {\n\nconst BuiltinTable kBuiltinTables[] = {'
    ]
    for name, text in tables.items():
        lines = "\n".join(
            '     "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"' for line in text.splitlines()
        )
        out.append(f'    {{"{name}",\n{lines}}},')
    out.append("    {nullptr, nullptr},\n};\n\n}  // namespace ek\n// clang-format on\n")
    return "\n".join(out)
