# SPDX-License-Identifier: Apache-2.0
"""docs/ops.md: every op, its arguments, formulas and rules, for people."""

from .c_api import BANNER


def _default(a):
    return str(a.default).lower() if a.type == "bool" else str(a.default)


def _op(op):
    out = [f"### {op.name}\n", op.doc + "\n", "| argument | role | type | default |", "|---|---|---|---|"]
    for t in op.tensors:
        out.append(f"| `{t.name}` | {t.role} | `{t.text}` | {'absent' if t.optional else ''} |")
    for a in op.attrs:
        kind = " / ".join(f"`{v}`" for v in op.enums[a.enum]) if a.enum else a.type
        out.append(f"| `{a.name}` | attribute | {kind} | {_default(a)} |")
    out.append("")
    notes = [f"`{v}`: {', '.join(names)}" for v, names in op.dtypes.items()]
    if op.combos:
        notes.append("combinations: " + "; ".join(", ".join(f"{k} = {v}" for k, v in c.items()) for c in op.combos))
    notes += [f"`{d} = {e}`" for d, e in op.dims.items()]
    notes += [f"{s} (`{e}`)" for e, s in op.require.items()]
    if op.alias:
        notes.append("may be in place: " + ", ".join(f"`{o}` over `{i}`" for o, i in op.alias))
    if op.backward:
        notes.append(f"gradient: `{op.backward['op']}`")
    notes.append(f"traffic: `{op.bytes}` bytes, `{op.flops}` flops")
    out += [f"- {n}" for n in notes]
    return "\n".join(out) + "\n"


def ops_page(ops):
    out = [
        f"<!-- {BANNER} -->\n# Ops\n",
        "In C each op is `ek_status ek_<op>(ek_context*, const ek_<op>_args*)`; in Python `einkorn.<op>(...)`. Leading"
        " dimensions `...` may be any number (of a tensor's 8 dimensions at most), with any strides >= 0; the last dimension"
        " of a tensor is contiguous unless it says `strided`; `?` marks an optional tensor. `rows` is the product of `...`. Attributes are frozen into a captured"
        " graph; tensor contents are not. Arithmetic is f32, with the exceptions that [numerics.md](numerics.md) names beside"
        " the tolerances; [dispatch.md](dispatch.md) says how a kernel is chosen.\n",
    ]
    families = list(dict.fromkeys(op.family for op in ops))
    for family in families:
        mine = [op for op in ops if op.family == family]
        out.append(f"## {family}\n\n" + " · ".join(f"[{op.name}](#{op.name})" for op in mine) + "\n")
        out += [_op(op) for op in mine]
    return "\n".join(out)
