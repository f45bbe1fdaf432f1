# SPDX-License-Identifier: Apache-2.0
"""The generator: its errors, and the widest planned ops (schemas/future.toml) generated, compiled and called."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gen  # noqa: E402
from einkorn_gen import schema  # noqa: E402

GOOD = """
[op]
doc = "y = x."
dtypes = { T = ["f32"] }
in = { x = "T[..., dim]" }
out = { y = "T[..., dim]" }
attrs = { eps = "f32 = 1e-6" }
bytes = "2 * rows * dim * sizeof(T)"
flops = "0"
"""

# What is changed in GOOD, and what the complaint must name.
BAD = [
    ('doc = "y = x."\n', "", "op.doc: missing"),
    ("flops", "flop", "op.flop: unknown field"),
    ('["f32"]', '["f33"]', "op.dtypes.T: unknown dtype 'f33'"),
    ("T = [", "t = [", "op.dtypes.t: a dtype variable starts with a capital letter"),
    ('x = "T[..., dim]"', 'x = "U[..., dim]"', "op.in.x: 'U' is neither a dtype variable"),
    ('x = "T[..., dim]"', 'x = "T[..., ...]"', "op.in.x: ... may stand once"),
    ('x = "T[..., dim]"', 'x = "T(dim)"', "op.in.x: expected e.g."),
    ('x = "T[..., dim]"', 'x = "T[..., dim] fast"', "op.in.x: unknown word 'fast'"),
    ('y = "T[..., dim]"', 'x = "T[..., dim]"', "op.x: two arguments have this name"),
    ('"f32 = 1e-6"', '"f32"', "op.attrs.eps: expected '<type> = <default>'"),
    ('"f32 = 1e-6"', '"i32 = 1.5"', "op.attrs.eps: default '1.5' is not a i32"),
    ('"f32 = 1e-6"', '"enum form = erf"', "op.attrs.eps: unknown enum 'form'"),
    ("sizeof(T)", "sizeof(Q)", "op.bytes: sizeof(Q): not a dtype"),
    ("2 * rows", "2 * row", "op.bytes: unknown name 'row'"),
    ("2 * rows", "print(rows)", "op.bytes: not an expression"),
    ('flops = "0"', 'flops = "0"\nalias = ["x: y"]', "op.alias[0]: expected '<output>: <input>'"),
    ('flops = "0"', 'flops = "0"\nbatch = ["n"]', "op.batch: 'n' is not a dimension"),
    (
        'flops = "0"',
        'flops = "0"\ndims = { half = "dim // 2" }\nbatch = ["half", "n"]',
        "op.batch: 'n' is not a dimension",
    ),
    ('flops = "0"', 'flops = "0"\nrequire = { "has(x)" = "s" }', "op.require: has(x): not an optional tensor"),
    ('flops = "0"', 'flops = "0"\nsince = { z = 2 }', "op.since.z: no such argument"),
    ('flops = "0"', 'flops = "0"\nbackward = { op = "op_back" }', "op.backward: no op 'op_back'"),
    ('flops = "0"', 'flops = "0"\nsince = { x = "2" }', "op.since.x: expected a number, got '2'"),
    ('flops = "0"', 'flops = "0"\nrequire = ["dim > 0"]', "op.require: expected a table"),
    ('flops = "0"', 'flops = "0"\nrequire = { "0 < dim < 9" = "s" }', "op.require: not an expression"),
    ('flops = "0"', 'flops = "0"\nrequire = { "x > 0" = "s" }', "op.require: unknown name 'x'"),
    ('flops = "0"', 'flops = "0"\nrequire = { "dim > 0" = "a \\"b\\"" }', "op.require.dim > 0: a text stands in C"),
    ('flops = "0"', 'flops = "0"\nalias = [3]', "op.alias[0]: expected a text, got 3"),
    ('flops = "0"', 'flops = "0"\nbackward = "op_back"', "op.backward: expected a table"),
    ('flops = "0"', 'flops = "0"\nbackward = { ops = "op" }', "op.backward.ops: unknown field"),
    (
        'flops = "0"',
        'flops = "0"\ndims = { a = "b", b = "dim" }',
        "op.dims.a: unknown name 'b' in 'b' (derived further",
    ),
    ('flops = "0"', 'flops = "0"\ndims = { eps = "dim" }', "op.dims.eps: this name is taken"),
    ('dtypes = { T = ["f32"] }', 'dtypes = ["f32"]', "op.dtypes: expected a table"),
    ('dtypes = { T = ["f32"] }', 'dtypes = { T = "f32" }', "op.dtypes.T: expected a list"),
    ('eps = "f32 = 1e-6"', 'eps = "i32 = 2147483648"', "op.attrs.eps: default 2147483648 is not a i32"),
    ('eps = "f32 = 1e-6"', 'default = "f32 = 1e-6"', "op.default: this name is taken"),
    ("dim]", "rows]", "op.dims.rows: this name is taken"),
    ("[op]", "[Op]", "Op: op names are lower-case"),
    ("[op]", "enums = 3\n[op]", "[enums]: expected a table, got 3"),
    ("[op]", "[enums]\nForm = ['erf']\n[op]", "[enums] Form: enum names are lower-case"),
    ("[op]", "[enums]\nform = ['erf', 'erf']\n[op]", "[enums] form: a value stands twice"),
    ("[op]", "[lambda]", "lambda: this name is taken"),
    ("[op]", "[double]", "double: this name is taken"),
    ("x = ", "in = ", "op.in: this name is taken"),
    ("x = ", "nullptr = ", "op.nullptr: this name is taken"),
    ("eps = ", "alignas = ", "op.alignas: this name is taken"),
    ("eps = ", "ctx = ", "op.ctx: this name is taken"),
    ("eps = ", "reserved1 = ", "op.reserved1: this name is taken"),
    ("dim]", "xor]", "op.dims.xor: this name is taken"),
    ("eps = ", '"eps\\n" = ', "argument names are lower-case"),
    ('x = "T[..., dim]"', 'x = "T[..., dim]", z = "list T[...]", z_count = "T[]"', "op.z_count: two arguments have"),
    ('x = "T[..., dim]"', 'x = "T[..., ²]"', "op.in.x: '²' is not a dimension"),
    ('y = "T[..., dim]"', 'y = "T[..., n]"', "op.out.y: n is no dimension of a required input"),
    ('x = "T[..., dim]"', 'x = "T[dim]"', "op.out.y: ... is no dimension of a required input"),
    ('y = "T[..., dim]"', "", "op.out: expected at least one tensor"),
    ('["f32"]', '[["f32"]]', "op.dtypes.T: unknown dtype ['f32']"),
    ('["f32"]', "[]", "op.dtypes.T: expected at least one dtype"),
    ("T = [", "None = [", "op.dtypes.None: this name is taken"),
    ("y = x.", "y =\\nx.", "op.doc: a text stands in C"),
    ("y = x.", "y /* x.", "op.doc: a text stands in C"),
    ('"f32 = 1e-6"', '"f32 = inf"', "op.attrs.eps: default inf is not a finite f32"),
    ('"f32 = 1e-6"', '"f32 = nan"', "op.attrs.eps: default nan is not a finite f32"),
    ('"f32 = 1e-6"', '"f32 = 1e39"', "op.attrs.eps: default 1e+39 is not a finite f32"),
    ('flops = "0"', 'flops = "rows * T"', "op.flops: 'T' in 'rows * T' is a dtype, no number: sizeof(T)"),
    ('flops = "0"', 'flops = "1.5 * rows"', "op.flops: a float in '1.5 * rows', expected an integer"),
    ('flops = "0"', 'flops = "rows * True"', "op.flops: not an expression"),
    ('flops = "0"', 'flops = "9223372036854775808"', "op.flops: not an expression"),
    (
        'flops = "0"',
        'flops = "0"\ndims = { n = "dim * 1.5" }',
        "op.dims.n: a float in 'dim * 1.5', expected an integer",
    ),
    ('flops = "0"', 'flops = "0"\ndims = { n = "max(eps, 1)" }', "op.dims.n: a float in 'max(eps, 1)'"),
    ('flops = "0"', 'flops = "0"\nrequire = { "dim % 1.5 > 0" = "s" }', "op.require: a float in 'dim % 1.5'"),
    ('flops = "0"', 'flops = "0"\nrequire = { "dim > 0" = "a\\nb" }', "op.require.dim > 0: a text stands in C"),
    ('flops = "0"', 'flops = "0"\ncombos = [{}]', "op.combos[0]: expected one dtype for each of T"),
    (
        'flops = "0"',
        'flops = "0"\nbackward = { op = "op", args = { x = 3 } }',
        "op.backward.args.x: expected a text, got 3",
    ),
    (
        'flops = "0"',
        'flops = "0"\nbackward = { op = "op", grads = { x = [] } }',
        "op.backward.grads.x: expected a text, got []",
    ),
    ("[op]", "[op", "family.toml"),
]


def load_text(tmp_path, text):
    (tmp_path / "family.toml").write_text(text)
    return schema.load(tmp_path)


def test_good_schema_loads(tmp_path):
    (op,) = load_text(tmp_path, GOOD)
    assert (op.name, op.family, op.dim_names, op.has_lead) == ("op", "family", ["dim"], True)


@pytest.mark.parametrize("old, new, message", BAD, ids=[m for _, _, m in BAD])
def test_error_names_file_op_and_field(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(schema.SchemaError) as error:
        load_text(tmp_path, GOOD.replace(old, new, 1))
    assert message in str(error.value)
    assert "family.toml" in str(error.value)


def test_floats_in_requirements_and_the_least_integer(tmp_path):
    text = GOOD.replace('"f32 = 1e-6"', '"f32 = 1e-6", n = "i64 = -9223372036854775808"')
    (op,) = load_text(tmp_path, text + 'require = { "eps >= 0.5 or dim > 0" = "s" }\n')
    assert gen.dispatch.to_cpp(op, *op.require) == "((a.eps >= 0.5f) || (a.dim > int64_t{0}))"
    assert gen.c_api.c_default(op.attrs[1]) == "INT64_MIN"


@pytest.mark.parametrize(
    "batch, flagged",
    [
        ('"..."', ["rows", "whole", "part"]),  # part is derived from what is derived from rows
        ('"dim"', ["dim", "whole", "part"]),
        ('"half"', ["half"]),  # derived, and named itself
        ('"part", "..."', ["rows", "whole", "part"]),
        ("", []),
    ],
)
def test_what_is_derived_from_a_batch_dim_is_one(tmp_path, batch, flagged):
    dims = 'dims = { whole = "rows * dim", part = "whole // 2", half = "width // 2" }'
    text = GOOD.replace('x = "T[..., dim]"', 'x = "T[..., dim]", w = "T[width]"')
    (op,) = load_text(tmp_path, f"{text}{dims}\nbatch = [{batch}]\n")
    source = gen.dispatch.family_source("family", [op])
    fields = re.findall(r'{"(\w+)", offsetof\(OpArgs, \w+\), FieldKind::kInt64, (\w+)', source)
    assert [name for name, _ in fields] == ["rows", "dim", "width", "whole", "part", "half"]
    assert [name for name, flag in fields if flag == "true"] == flagged


def test_op_defined_twice(tmp_path):
    (tmp_path / "other.toml").write_text(GOOD)
    with pytest.raises(schema.SchemaError, match="also defined in"):
        load_text(tmp_path, GOOD)


def test_committed_files_are_fresh():
    assert gen.stale_files(ROOT, gen.outputs(ROOT)) == ([], [])


def test_stale_file_is_found(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/old_gen.cpp").write_text("// Generated by tools/gen.py")
    (tmp_path / "src/test_gen.py").write_text("# written by hand")
    stale, left = gen.stale_files(tmp_path, {"src/new_gen.cpp": "text"})
    assert (stale, left) == (["src/new_gen.cpp"], ["src/old_gen.cpp"])


def test_future_ops_compile_and_check_their_arguments(tmp_path, testable_library):
    """attention, adamw, gemm_epilogue, moe_ffn, gemm_gguf: through the generator, a compiler, and calls."""
    ops = schema.load(ROOT / "tests/core/schemas")
    header = (ROOT / "include/einkorn/einkorn.h").read_text()
    for path, text in gen.core_outputs(ops, header, {}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    sources = [tmp_path / "src/dispatch/future_gen.cpp", tmp_path / "src/dispatch/registry_gen.cpp"]
    sources.append(ROOT / "tests/core/schemas/future_driver.cpp")
    # The generated headers come first, so that they stand in for the library's own; its objects bring no ops of theirs.
    include = [f"-I{d}" for d in (tmp_path / "include", tmp_path / "src", ROOT / "include", ROOT / "src")]
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *include, *map(str, sources), *testable_library]
    built = subprocess.run([*command, "-o", tmp_path / "driver"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "driver"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # The Python module, its table and the formulas of the bench, which are Python too.
    for path, text in (gen.python.generate(ops) | gen.bench.generate(ops)).items():
        if path.endswith(".py"):
            compile(text, path, "exec")
    formulas = {}
    exec(gen.bench.generate(ops)["bench/formulas_gen.py"], formulas)
    assert formulas["adamw"]("bf16", "f32", elements=10, has=("master",)) == ({}, 10 * (6 + 16 + 8), 160)
    header_test = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc", *include]
    subprocess.run([*header_test, str(tmp_path / "include/einkorn/ops.h")], check=True)
