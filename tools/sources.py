# SPDX-License-Identifier: Apache-2.0
"""Which sources a result speaks for, as hashes. Used by bench/run.py and tools/gpu-check."""

import hashlib
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("test", "memcheck", "racecheck", "bench")
CORE = "core"  # stands beside the families: tests that belong to none

INCLUDE = re.compile(r'^#include "((?:ops|cuda)/[^"]+)"', re.M)
IMPORT = re.compile(r"^\s*from (?:harness|\.)\.?(\w*) import (?:\(([^)]*)\)|(.*))", re.M)
OP = re.compile(r"^\[(\w+)\]", re.M)
TABLES = "src/dispatch/tables"

# How sources become a library: flags, architectures, what the generator writes.
MAKING = ("CMakeLists.txt", "CMakePresets.json", "cmake", "tools/einkorn_gen")
# What every family's kernels are made of or chosen by. Generated files follow from these and from the schema, and one
# family must not go stale because another gained an op, so they are left out.
SHARED = ("include/einkorn/einkorn.h", "src/core", "src/dispatch", *MAKING)
# What is compiled or copied into the build folder.
BUILT = (
    *MAKING,
    "include",
    "src",
    "schema",
    "bindings/python",
    "bench/host.cu",
    "bench/CMakeLists.txt",
    "tests/core",
    "tests/abi",
)
ASKED = ("bindings", "tests", "bench/cases")  # what else hashes speak of: what is run, and how


def gpu_folder(name):
    """Where a GPU's results are, by the name that the driver has for it: NVIDIA H100 80GB HBM3 is h100."""
    words = [w for w in re.split(r"[\s-]+", name.lower()) if w not in ("nvidia", "tesla", "geforce", "quadro")]
    model = [w for w in words if not re.fullmatch(r"\d+gb|hbm\d+e?|pcie|sxm\d*|nvl", w)]
    return "-".join(model or words)


def build_folder(root=ROOT):
    return root / "build" / "cuda"


def families():
    return sorted(p.stem for p in (ROOT / "schema").glob("*.toml"))


def files(*paths, root=ROOT):
    """All files under the paths that someone wrote by hand, sorted."""
    found = []
    for path in paths:
        p = root / path
        found += [p] if p.is_file() else [q for q in p.rglob("*") if q.is_file()]
    return sorted(q for q in found if "_gen." not in q.name and "__pycache__" not in q.parts)


def digest(paths, root=ROOT, extra=""):
    h = hashlib.sha256(extra.encode())
    for p in paths:
        h.update(f"{p.relative_to(root)}\0".encode())
        h.update(hashlib.sha256(p.read_bytes()).digest())
    return h.hexdigest()[:16]


def included(paths, root=ROOT):
    """The headers of src/cuda and of other families that these files include, directly or not: a family must not go stale
    because another one's kernels got a new building block."""
    found, queue = set(), list(paths)
    while queue:
        for name in INCLUDE.findall(queue.pop().read_text()):
            header = root / "src" / name
            if header not in found and header not in paths and header.exists() and "_gen." not in header.name:
                found.add(header)
                queue.append(header)
    return sorted(found)


def harness(tests, root=ROOT):
    """The modules of tests/harness that these tests import, directly or not. Of names that the package passes on, the module
    that they are from: one family's tests must not go stale because another's got a new shape."""
    folder = root / "tests" / "harness"
    package = folder / "__init__.py"

    def imports(file):
        return [(module, re.findall(r"\w+", a or b)) for module, a, b in IMPORT.findall(file.read_text())]

    if not package.exists():
        return []
    given = {name: module for module, names in imports(package) for name in names}
    found, queue = {package}, [p for p in tests if p.suffix == ".py"]
    while queue:
        for module, names in imports(queue.pop()):
            for name in [module] if module else [given.get(n, n) for n in names]:
                file = folder / f"{name}.py"
                if file.exists() and file not in found:
                    found.add(file)
                    queue.append(file)
    return sorted(found)


def routes(family, root=ROOT):
    """The rules of the measured tables that speak of a family's ops."""
    ops = set(OP.findall((root / "schema" / f"{family}.toml").read_text()))
    lines = [line for p in files(TABLES, root=root) for line in p.read_text().splitlines()]
    return "\n".join(line for line in lines if line.split(" ")[0] in ops)


def family_hash(family, stage, root=ROOT):
    """Of what a result of this stage depends on. A changed test or case is a test or case that has not run. How cases are
    timed and shown (bench/*.py) is left out: a result says what was timed when it was."""
    shared = [p for p in files(*SHARED, root=root) if root / TABLES not in p.parents]
    if family == CORE:  # its tests go over all ops, by what the tests of the families say of them
        return digest(sorted([*shared, *files("src/ops", "src/cuda", "schema", "tests", "bindings", root=root)]), root)
    own = files(f"src/ops/{family}", root=root)
    if stage == "bench":
        asked = files(f"bench/cases/{family}.toml", root=root)
    else:
        asked = files(f"tests/ops/{family}", "tests/conftest.py", root=root)
        asked += harness(asked, root)
    made_of = [*shared, *own]
    paths = sorted([*made_of, *included(made_of, root), *files(f"schema/{family}.toml", root=root), *asked])
    return digest(paths, root, routes(family, root) if stage == "bench" else "")


def build_hash(root=ROOT):
    return digest(files(*BUILT, root=root), root)


def commit(root=ROOT):
    """Of what a result speaks of: what was built, where the build folder is of these very sources (a machine with a GPU may
    have a copy of the tree without git, or with a git of its own), else what is checked out."""
    record = built(build_folder(root))
    same = record.get("source_hash") == build_hash(root)
    return record["commit"] if same and record.get("commit") else checked_out(root)


def checked_out(root=ROOT):
    """The commit, with -dirty where one of the hashed sources differs or is new: results copied into the tree do not count."""

    def git(*words):
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return "unknown"  # a copy inside of another repository
        changed = git("status", "--porcelain", "--untracked-files=all", "--", *BUILT, *ASKED)
        return git("rev-parse", "--short=12", "HEAD") + "-dirty" * bool(changed)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown"


def built(folder=None):
    """What tools/gpu-check wrote down when it built."""
    file = (folder or build_folder()) / "built.json"
    return json.loads(file.read_text()) if file.exists() else {}
