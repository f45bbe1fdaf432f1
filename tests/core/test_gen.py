# SPDX-License-Identifier: Apache-2.0
"""The generator: its errors, and the widest planned ops (schemas/future.toml) generated, compiled and called."""

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
    ('flops = "0"', 'flops = "0"\nrequire = { "has(x)" = "s" }', "op.require: has(x): not an optional tensor"),
    ('flops = "0"', 'flops = "0"\nsince = { z = 2 }', "op.since.z: no such argument"),
    ('flops = "0"', 'flops = "0"\nbackward = { op = "op_back" }', "op.backward: no op 'op_back'"),
    ("[op]", "[Op]", "Op: op names are lower-case"),
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


def test_op_defined_twice(tmp_path):
    (tmp_path / "other.toml").write_text(GOOD)
    with pytest.raises(schema.SchemaError, match="also defined in"):
        load_text(tmp_path, GOOD)


def test_committed_files_are_fresh():
    assert gen.stale_files(ROOT, gen.outputs(ROOT)) == ([], [])


def test_stale_file_is_found(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/old_gen.cpp").write_text("")
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
    header_test = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc", *include]
    subprocess.run([*header_test, str(tmp_path / "include/einkorn/ops.h")], check=True)
