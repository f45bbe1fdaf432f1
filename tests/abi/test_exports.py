# SPDX-License-Identifier: Apache-2.0
"""The library exports the C ABI of exports.txt and nothing else; its routing tables are good."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import einkorn
import pytest

ROOT = Path(__file__).resolve().parents[2]


def exported(library):
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm")
    text = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    # "0000000000012340 T ek_add@@EINKORN_0"; the version node itself is listed as an absolute symbol
    symbols = [line.split() for line in text.splitlines()]
    return sorted(s[-1].split("@")[0] for s in symbols if s[-2] != "A")


def test_exports():
    expected = (ROOT / "tests/abi/exports.txt").read_text().split()
    assert exported(einkorn.library_path()) == sorted(expected)


def test_every_function_is_tested_with_bad_arguments():
    """Those of einkorn.h by hand, in C; those of ops follow from the schema (tests/ops/test_errors.py)."""
    header = (ROOT / "include/einkorn/einkorn.h").read_text()
    declared = set(re.findall(r"^EK_API\b[^;(]*?\b(ek_\w+)\(", header, re.MULTILINE))
    fails = set(re.findall(r"^EK_API\s+ek_status\s+(ek_\w+)\(", header, re.MULTILINE))
    assert len(declared) >= 40 and len(fails) >= 27, "the header is not read as it should be"
    tests = (ROOT / "tests/abi/test_runtime_errors.c").read_text()
    assert declared - set(re.findall(r"\b(ek_\w+)\(", tests)) == {"ek_version", "ek_build_info"}, (
        "these have no arguments"
    )
    checked = set(re.findall(r"\b(?:CHECK_FAILS|FAILS|NO_CONTEXT|NOT_FOUND)\((ek_\w+)\(", tests))
    assert not fails - checked, "these have a status, and no test looks at it"


def test_needs_no_driver_and_no_cpp_runtime():
    """What must be on the user's machine: the C library, and nothing of CUDA."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf")
    text = subprocess.run([readelf, "-d", einkorn.library_path()], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\]", text))
    allowed = r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so\.\d+|ld-linux.*"
    assert {name for name in needed if not re.fullmatch(allowed, name)} == set()


def library():
    lib = ctypes.CDLL(einkorn.library_path())
    for name in ("ek_build_info", "ek_context_error", "ek_last_error"):
        getattr(lib, name).restype = ctypes.c_char_p
    lib.ek_context_error.argtypes = lib.ek_context_destroy.argtypes = [ctypes.c_void_p]
    lib.ek_table_set.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return lib


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


@pytest.mark.parametrize("path", sorted((ROOT / "src/dispatch/tables").glob("*.table")), ids=lambda p: p.stem)
def test_builtin_tables(path):
    lib = library()
    if b"cpu only" in lib.ek_build_info():
        pytest.skip("a build without the rows that the table names")
    context = ctypes.c_void_p()
    assert lib.ek_context_create(Device(1, 0), ctypes.byref(context)) == 0, lib.ek_last_error()
    status = lib.ek_table_set(context, path.read_bytes())
    error = lib.ek_context_error(context).decode()
    lib.ek_context_destroy(context)
    assert status == 0, error
