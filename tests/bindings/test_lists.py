# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors. No op of the library has one yet, so the package is built around the ops of
tests/core/schemas/future.toml, whose rows only record, and lists_calls.py calls adamw in a process of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gen  # noqa: E402
from einkorn_gen import schema  # noqa: E402


def test_lists(tmp_path, testable_library):
    python = sysconfig.get_path("include")
    if not (Path(python) / "Python.h").exists():
        pytest.skip("no headers of Python")
    # The extension is copied: its own ops_gen.h would be found before any other.
    shutil.copytree(
        ROOT / "bindings/python", tmp_path / "bindings/python", ignore=shutil.ignore_patterns("__pycache__")
    )
    ops = schema.load(ROOT / "tests/core/schemas")
    header = (ROOT / "include/einkorn/einkorn.h").read_text()
    for path, text in (gen.core_outputs(ops, header, {}) | gen.python.generate(ops)).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    sources = [*(tmp_path / "bindings/python/src").glob("*.cpp"), ROOT / "tests/core/schemas/future_driver.cpp"]
    sources += [tmp_path / "src/dispatch" / f"{name}_gen.cpp" for name in ("future", "registry")]
    include = [f"-I{d}" for d in (tmp_path / "include", tmp_path / "src", ROOT / "include", ROOT / "src", python)]
    command = ["g++", "-std=c++17", "-fPIC", "-shared", "-DPy_LIMITED_API=0x030B0000", *include, *map(str, sources)]
    package = tmp_path / "bindings/python/einkorn"
    native = ["-o", str(package / "_native.abi3.so")]
    built = subprocess.run([*command, *testable_library, *native], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    calls = [sys.executable, str(ROOT / "tests/bindings/lists_calls.py")]
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    ran = subprocess.run(calls, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
