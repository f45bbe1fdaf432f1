#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes everything that follows from schema/: header, checks, entry points, bindings, docs. Needs only the stdlib.

    tools/gen.py            write what changed
    tools/gen.py --check    write nothing; fail and name the files that are stale
"""

import argparse
import sys
from pathlib import Path

from einkorn_gen import bench, c_api, dispatch, docs, python
from einkorn_gen.schema import SchemaError, load

ROOT = Path(__file__).resolve().parent.parent


def core_outputs(ops, core_header, tables):
    """Path -> text of the C and C++ side and the docs."""
    names = c_api.symbols(ops, core_header)
    files = {
        "include/einkorn/ops.h": c_api.header(ops),
        "src/dispatch/ops_gen.h": dispatch.args_header(ops),
        "src/dispatch/registry_gen.cpp": dispatch.registry_source(ops),
        "src/dispatch/tables_gen.cpp": dispatch.tables_source(tables),
        "tests/abi/exports.txt": "\n".join(names) + "\n",
        "tests/abi/symbols_gen.c": c_api.symbol_test(names),
        "docs/ops.md": docs.ops_page(ops),
    }
    for family in dict.fromkeys(op.family for op in ops):
        files[f"src/dispatch/{family}_gen.cpp"] = dispatch.family_source(family, ops)
    return files


def outputs(root):
    ops = load(root / "schema")
    tables = {p.stem.replace("_", " "): p.read_text() for p in sorted((root / "src/dispatch/tables").glob("*.table"))}
    files = core_outputs(ops, (root / "include/einkorn/einkorn.h").read_text(), tables)
    return files | python.generate(ops) | bench.generate(ops)


def stale_files(root, files):
    """Generated files that differ from disk, and files on disk that look generated but no longer are."""
    stale = [p for p, text in files.items() if not (root / p).exists() or (root / p).read_text() != text]
    known = {root / p for p in files}
    folders = ("include", "src", "bindings", "tests", "bench", "docs")
    left = [p for f in folders for p in (root / f).rglob("*_gen.*") if p not in known and "__pycache__" not in p.parts]
    return stale, [str(p.relative_to(root)) for p in left]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    options = parser.parse_args()
    try:
        files = outputs(ROOT)
    except SchemaError as e:
        sys.exit(f"gen.py: {e}")
    stale, left = stale_files(ROOT, files)
    if options.check:
        for p in stale:
            print(f"gen.py: {p} is stale: run tools/gen.py", file=sys.stderr)
        for p in left:
            print(f"gen.py: {p} is no longer generated: delete it", file=sys.stderr)
        sys.exit(1 if stale or left else 0)
    for p in stale:
        (ROOT / p).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / p).write_text(files[p])
        print(f"wrote {p}")
    for p in left:
        (ROOT / p).unlink()
        print(f"deleted {p}")


if __name__ == "__main__":
    main()
