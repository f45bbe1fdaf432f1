# SPDX-License-Identifier: Apache-2.0
"""tools/lint.py, tools/sources.py and what tools/gpu-check records, on small made-up trees; tools/spills.py."""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import lint, sources  # noqa: E402

TABLE = "src/dispatch/tables/GPU.table"

SCHEMA = """[twice]
doc = "y = 2 x."
dtypes = { T = ["f32"] }
in = { x = "T[..., dim]" }
out = { y = "T[..., dim]" }
bytes = "2 * rows * dim * sizeof(T)"
flops = "rows * dim"
"""
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture
def tree(tmp_path):
    """A project with one op that is whole."""
    files = {
        "schema/small.toml": SCHEMA,
        "docs/glossary.md": "`rows` and `dim`\n",
        "src/ops/small/twice_cpu.cpp": SPDX,
        "src/ops/small/twice_cuda.cu": SPDX + '#include "ops/shared/help.cuh"\n',
        "src/ops/shared/help.cuh": SPDX + '#include "cuda/vec.cuh"\n',
        "src/cuda/vec.cuh": SPDX + 'asm volatile("");\n',
        "tests/ops/small/test_twice.py": "# SPDX-License-Identifier: Apache-2.0\n",
        "bench/cases/small.toml": "[twice]\ncases = [{ rows = 1, dim = 8 }]\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def problems(tree):
    return lint.Lint(tree).run()


def test_a_whole_op_is_clean(tree):
    assert problems(tree) == []


@pytest.mark.parametrize(
    "path", ["src/ops/small/twice_cpu.cpp", "src/ops/small/twice_cuda.cu", "tests/ops/small/test_twice.py"]
)
def test_an_op_that_lacks_a_file_is_named(tree, path):
    (tree / path).unlink()
    assert problems(tree) == [f"schema/small.toml: twice has no {path}"]


def test_an_op_without_a_case_is_named(tree):
    (tree / "bench/cases/small.toml").write_text("")
    assert problems(tree) == ["schema/small.toml: twice has no case in bench/cases/small.toml"]


def test_dimensions_are_in_the_glossary(tree):
    (tree / "docs/glossary.md").write_text("`rows`\n")
    assert problems(tree) == ["schema/small.toml: dimension dim of twice is not in docs/glossary.md"]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("int a;\n" * 601, "split it"),
        ('asm volatile("ret;");\n', "inline assembly"),
        ("#include <vector>\n", "in CUDA code"),
        ("// TODO: later\n", "work left for later"),
        ('getenv("EINKORN_FAST");\n', "environment variable EINKORN_FAST"),
        ('getenv("HOME");\n', "environment variable HOME"),
    ],
)
def test_what_does_not_belong_is_found(tree, text, problem):
    (tree / "src/ops/small/twice_cuda.cu").write_text(SPDX + text)
    (found,) = problems(tree)
    assert problem in found and found.startswith("src/ops/small/twice_cuda.cu")


def test_spdx_is_asked_for(tree):
    (tree / "src/ops/small/twice_cuda.cu").write_text("int a;\n")
    assert problems(tree) == ["src/ops/small/twice_cuda.cu: no SPDX line at the top"]


# ---- which sources a result speaks for ------------------------------------------------------------------------------


def test_the_folder_of_a_gpu():
    """One name for bench and gpu-check, whatever the driver adds to that of the model."""
    names = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA A100-SXM4-80GB": "a100", "Tesla T4": "t4",
             "NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA B200": "b200"}  # fmt: skip
    assert {name: sources.gpu_folder(name) for name in names} == names


def test_a_family_goes_stale_with_what_it_is_made_of(tree):
    def changed(path, stage):
        before = sources.family_hash("small", stage, tree)
        old = (tree / path).read_text()
        (tree / path).write_text(old + "\n")
        after = sources.family_hash("small", stage, tree)
        (tree / path).write_text(old)
        return before != after

    for path in ("schema/small.toml", "src/ops/small/twice_cuda.cu", "src/cuda/vec.cuh", "src/ops/shared/help.cuh"):
        assert changed(path, "test") and changed(path, "bench"), path
    assert changed("tests/ops/small/test_twice.py", "test") and not changed("tests/ops/small/test_twice.py", "bench")
    assert changed("bench/cases/small.toml", "bench") and not changed("bench/cases/small.toml", "test")
    (tree / "src/dispatch").mkdir()
    before = sources.family_hash("small", "test", tree)
    (tree / "src/dispatch/other_gen.cpp").write_text("of another family")
    assert sources.family_hash("small", "test", tree) == before


def test_tests_speak_for_the_parts_of_the_harness_that_they_import(tree):
    def changed(path):
        before = sources.family_hash("small", "test", tree)
        (tree / path).write_text((tree / path).read_text() + "\n")
        return sources.family_hash("small", "test", tree) != before

    for name, text in (
        ("__init__", "from .given import Given, Gift\nfrom .other import Other\n"),
        ("given", "from . import below\n"),
        ("below", ""),
        ("direct", "from .deep import (\n    a,\n    b,\n)\n"),
        ("deep", ""),
        ("module", ""),
        ("other", ""),
    ):
        (tree / "tests/harness").mkdir(parents=True, exist_ok=True)
        (tree / f"tests/harness/{name}.py").write_text(text)
    test = tree / "tests/ops/small/test_twice.py"
    test.write_text("from harness import Gift, module\nfrom harness.direct import x\n" + test.read_text())
    for name in ("__init__", "given", "below", "direct", "deep", "module"):
        assert changed(f"tests/harness/{name}.py"), name
    assert not changed("tests/harness/other.py")
    # What can't be followed is not used.
    lines = [line for p in (ROOT / "tests").rglob("*.py") for line in p.read_text().splitlines()]
    assert not [line for line in lines if line.lstrip().startswith("import harness")]


def stale(tree, path):
    """Which families a change of the file makes stale, as (family, stage)."""

    def hashes():
        return {(f, s): sources.family_hash(f, s, tree) for f in ("small", sources.CORE) for s in ("test", "bench")}

    before, file = hashes(), tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text((file.read_text() if file.exists() else "") + "\n")
    return {key for key, value in hashes().items() if value != before[key]}


@pytest.mark.parametrize(
    "path", ["CMakeLists.txt", "CMakePresets.json", "cmake/cuda.cmake", "tools/einkorn_gen/dispatch.py"]
)
def test_all_is_stale_with_how_the_library_is_made(tree, path):
    assert len(stale(tree, path)) == 4


def test_a_building_block_speaks_for_the_families_that_include_it(tree):
    assert stale(tree, "src/cuda/other.cuh") == {(sources.CORE, s) for s in ("test", "bench")}
    (tree / "src/core").mkdir()
    (tree / "src/core/launch.cpp").write_text('#include "cuda/other.cuh"\n')
    assert len(stale(tree, "src/cuda/other.cuh")) == 4


@pytest.mark.parametrize(
    "path", ["src/ops/small/twice_cuda.cu", "schema/small.toml", "schema/other.toml", "tests/ops/small/test_twice.py"]
)
def test_core_is_stale_with_every_op(tree, path):
    assert (sources.CORE, "test") in stale(tree, path)


def git(tree, *words):
    command = ["git", "-C", str(tree), "-c", "user.name=n", "-c", "user.email=e", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tree):
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "first")
    return tree


@pytest.mark.parametrize(
    "path", ["src/ops/small/twice_cpu.cpp", "tests/core/test_select.cpp", "tests/abi/test_threads.c"]
)
def test_what_is_compiled_is_built_again(tree, path):
    before = sources.build_hash(tree)
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(SPDX + "int changed;\n")
    assert sources.build_hash(tree) != before


def test_a_result_names_the_commit_that_was_built(repository):
    head = git(repository, "rev-parse", "--short=12", "HEAD")
    assert sources.commit(repository) == head
    folder = sources.build_folder(repository)
    folder.mkdir(parents=True)
    record = {"source_hash": sources.build_hash(repository), "commit": "built1234567"}
    (folder / "built.json").write_text(json.dumps(record))
    assert sources.commit(repository) == "built1234567" and sources.checked_out(repository) == head
    (repository / "src/ops/small/twice_cuda.cu").write_text(SPDX)  # no longer what was built
    assert sources.commit(repository) == head + "-dirty"


@pytest.mark.parametrize(
    "path, dirty",
    [
        ("src/ops/small/twice_cuda.cu", True),
        ("src/ops/small/new_cuda.cu", True),  # CMake takes what it finds
        ("tests/ops/small/test_twice.py", True),
        ("bench/cases/small.toml", True),
        ("bench/results/h200/small.json", False),
        ("docs/glossary.md", False),
    ],
)
def test_only_hashed_sources_make_a_commit_dirty(repository, path, dirty):
    (repository / path).parent.mkdir(parents=True, exist_ok=True)
    (repository / path).write_text("changed")
    assert sources.checked_out(repository).endswith("-dirty") == dirty


def test_a_copy_without_git_knows_no_commit(repository):
    copy = repository / "copy"
    shutil.copytree(repository, copy, ignore=lambda folder, names: [n for n in names if n in (".git", "copy")])
    assert sources.commit(copy) == "unknown"  # not that of the repository around it


# ---- gpu-check ------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu_check(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "tools/gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "gpu_name", lambda: "h200")
    monkeypatch.setattr(module, "results", lambda gpu: tmp_path / gpu)
    return module


def hashes(stage):
    return {f: sources.family_hash(f, stage) for f in [*sources.families(), sources.CORE]}


def tally(passed, failed=0):
    return {"passed": passed, "failed": failed, "skipped": 0}


def check_all(module, **odd):
    for stage in sources.STAGES:
        counts = {f: odd.get(f, tally(3)) for f in hashes(stage)}
        code = 1 if any(t["failed"] for t in counts.values()) else 0
        module.record(stage, code, counts, hashes(stage), 1.0)


def test_only_hazards_of_other_libraries_are_passed_over(gpu_check):
    def report(kernel, shown=1, found=1, tests="3 passed in 1.50s"):
        races = f"========= Error: Race reported between Read access at {kernel}+0xb00\n" * shown
        plural = "" if shown == 1 else "s"
        return f"{races}{tests}\nRACECHECK SUMMARY: {shown} hazard{plural} displayed ({found} errors, 0 warnings)\n"

    assert gpu_check.others_hazards(report("nvjet_sm90_64x8"))
    assert not gpu_check.others_hazards(report("void ek::gemm_sm90<ek::Tile>(ek::Params)"))
    assert not gpu_check.others_hazards(report("nvjet_sm90_64x8") + report("void ek::softmax(float*)"))
    assert not gpu_check.others_hazards(report("nvjet_sm90_64x8", shown=20, found=96))  # what is left out may be ours
    assert not gpu_check.others_hazards(report("nvjet_sm90_64x8", tests="Segmentation fault"))


def test_status_knows_never_run_checked_changed_and_failed(gpu_check, tmp_path, capsys):
    assert not gpu_check.status("h200")
    assert "never run" in capsys.readouterr().out
    check_all(gpu_check)
    assert gpu_check.status("h200")
    file = tmp_path / "h200" / "checked.json"
    data = json.loads(file.read_text())
    data["norm"]["test"]["source_hash"] = "old"
    file.write_text(json.dumps(data))
    assert not gpu_check.status("h200")
    lines = [line for line in capsys.readouterr().out.split("\n") if "changed" in line]
    assert len(lines) == 1 and lines[0].startswith("norm")


def test_a_failed_test_counts_against_its_own_family(gpu_check, capsys):
    check_all(gpu_check, norm=tally(2, 1))
    assert not gpu_check.status("h200")
    failed = [line.split()[0] for line in capsys.readouterr().out.split("\n") if "FAILED" in line]
    assert set(failed) == {"norm"}


def test_a_sanitizer_finding_counts_against_all_that_ran(gpu_check, capsys):
    check_all(gpu_check)
    gpu_check.record("memcheck", 99, {"norm": tally(3)}, hashes("memcheck"), 1.0)
    assert not gpu_check.status("h200")
    failed = [line.split()[:2] for line in capsys.readouterr().out.split("\n") if "FAILED" in line]
    assert failed == [["norm", "memcheck"]]


def test_what_was_built_earlier_gets_the_commit_of_today(gpu_check, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "BUILD", tmp_path)
    monkeypatch.setattr(gpu_check, "is_built", lambda: True)
    monkeypatch.setattr(sources, "built", lambda: {"source_hash": "a", "commit": "old-dirty"})
    monkeypatch.setattr(sources, "checked_out", lambda: "new")
    monkeypatch.setattr(gpu_check, "ROOT", tmp_path)
    gpu_check.build()
    assert not (tmp_path / "built.json").exists()  # elsewhere the record stays as it came
    gpu_check.build(here=True)
    assert json.loads((tmp_path / "built.json").read_text()) == {"source_hash": "a", "commit": "new"}


def test_a_family_that_did_not_end_does_not_take_the_others_along(gpu_check, monkeypatch, tmp_path):
    """Its own tests that did end are not recorded either."""
    families = sources.families()
    monkeypatch.setattr(gpu_check, "build", lambda: None)
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *args: None)
    monkeypatch.setattr(gpu_check, "shared_gpu", lambda: contextlib.nullcontext({}))
    monkeypatch.setattr(gpu_check, "run_programs", lambda tally: [0])

    def run_beside(commands, extra):
        """Each file has one test, which passes; the last process of the first family, and one of core, are stopped."""
        codes = []
        for command in commands:
            part = Path(command[command.index("pytest") + 1])
            report = next(c for c in command if c.startswith("--junitxml=")).partition("=")[2]
            name = ".".join(part.with_suffix("").parts)
            Path(report).write_text(f"<testsuite><testcase classname='{name}' name='a'/></testsuite>")
            codes.append(0)
        first = [i for i, c in enumerate(commands) if any(f"tests/ops/{families[0]}/" in word for word in c)]
        codes[first[-1]] = codes[-1] = None
        return codes

    monkeypatch.setattr(gpu_check, "run_beside", run_beside)
    monkeypatch.setattr(sys, "argv", ["gpu-check", "--stage", "test"])
    with pytest.raises(SystemExit) as end:
        gpu_check.main()
    assert str(end.value) == "gpu-check: failed: test"
    recorded = json.loads((tmp_path / "h200" / "checked.json").read_text())
    assert sorted(recorded) == families[1:]
    assert all(f["test"]["exit_code"] == 0 and f["test"]["passed"] >= 1 for f in recorded.values())


STOPPED = """
import importlib.machinery, importlib.util, signal, sys
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(module)
signal.signal(signal.SIGTERM, module.stop)
module.run_beside([["bash", "-c", f"> {sys.argv[2]}/$$; exec sleep 60"]] * 100, {})
"""


def test_what_runs_ends_with_gpu_check(tmp_path):
    """Or it would go on beside whatever is timed next."""
    process = subprocess.Popen([sys.executable, "-c", STOPPED, str(ROOT / "tools/gpu-check"), str(tmp_path)], cwd=ROOT)
    while not list(tmp_path.iterdir()):  # a file for each, named by its number
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    for started in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.killpg(int(started.name), 0)


def test_the_bench_goes_family_by_family(gpu_check):
    """Each within the limit of a stage; all of them would not be."""
    stages, families = ["build", *sources.STAGES], sources.families()
    tests = [(stage, None) for stage in sources.STAGES if stage != "bench"]
    assert list(gpu_check.runs(stages, None)) == [*tests, *(("bench", [family]) for family in families)]
    assert list(gpu_check.runs(["bench", "test"], families[:2])) == [
        ("bench", families[:1]), ("bench", families[1:2]), ("test", families[:2]),
    ]  # fmt: skip


def test_what_is_not_there_is_not_run(gpu_check, monkeypatch, tmp_path):
    """Programs that were not taken along do not count as passed, and what core has none of starts nothing."""
    monkeypatch.setattr(gpu_check, "BUILD", tmp_path)
    assert gpu_check.run_programs({"passed": 0, "failed": 0, "skipped": 0}) == [None]
    monkeypatch.setattr(gpu_check, "run", lambda *args, **rest: pytest.fail("it started something"))
    options = types.SimpleNamespace(family=[sources.CORE], k=None, filter=None)
    assert gpu_check.stage_sanitizer(options, "racecheck") == (0, {})
    assert gpu_check.stage_bench(options) == (0, {})


@pytest.mark.parametrize(
    "words, advice",
    [
        ("-k rms_norm", "-k chooses tests"),  # all stages, the bench among them
        ("-k rms_norm --stage bench", "-k chooses tests"),
        ("-k rms_norm --stage test --stage bench", "-k chooses tests"),
        ("--filter rows=1", "--filter chooses cases of the bench"),
        ("--filter rows=1 --stage sanitize", "--filter chooses cases of the bench"),
        ("--filter rows=1 --stage bench --stage test", "--filter chooses cases of the bench"),
        ("-k rms_norm --stage sanitize", None),
        ("--filter rows=1 --stage bench", None),
    ],
)
def test_what_a_stage_can_not_choose_by_is_refused(gpu_check, monkeypatch, words, advice):
    """Before anything is built."""
    monkeypatch.setattr(sys, "argv", ["gpu-check", *words.split()])
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *args: None)
    monkeypatch.setattr(gpu_check, "build", lambda: sys.exit("built"))
    with pytest.raises(SystemExit) as end:
        gpu_check.main()
    assert str(end.value).startswith(f"gpu-check: {advice}" if advice else "built")


def test_what_was_only_skipped_is_not_recorded(gpu_check):
    gpu_check.record("test", 0, {"norm": {"passed": 0, "failed": 0, "skipped": 9}}, hashes("test"), 1.0)
    assert not gpu_check.status("h200")


def test_counts_come_from_the_folders_of_the_tests(gpu_check, tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.ops.norm.test_rms_norm" name="a"/>'
        '<testcase classname="tests.ops.norm.test_rms_norm" name="b"><failure/></testcase>'
        '<testcase classname="tests.ops.test_graphs" name="c"><skipped/></testcase>'
        '<testcase classname="tests.core.test_x" name="d"/>'
        "</testsuite></testsuites>"
    )
    assert gpu_check.count(report) == {
        "norm": {"passed": 1, "failed": 1, "skipped": 0},
        "core": {"passed": 1, "failed": 0, "skipped": 1},
    }


def test_a_row_that_was_skipped_everywhere_never_ran(gpu_check, tmp_path):
    names = {"a": "", "b": "<skipped message='x'/>", "lib": f"<skipped message='{gpu_check.NO_LIBRARY}'/>"}
    cases = "".join(f"<testcase name='test_twice[shapes-f32-twice_{n}]'>{skip}</testcase>" for n, skip in names.items())
    for name, text in (("0", cases), ("1", cases)):
        (tmp_path / name).write_text(f"<testsuite>{text}</testsuite>")
    assert gpu_check.never_ran([tmp_path / "0", tmp_path / "1"]) == ["twice_b"]


def test_what_is_written_twice_is_the_same(gpu_check):
    """What one language or tool can't take from another: the sizes that reach every tile, and why a row did not run."""
    for name, constant, least in (("TILES", "kSizes", 30), ("WAVES", "kWaves", 3), ("SOME_TILES", "kSome", 10)):
        sizes = [
            re.findall(r"(\d+), (\d+), (\d+)", re.search(pattern, (ROOT / path).read_text(), re.S)[1])
            for path, pattern in (
                ("tests/harness/matrix.py", rf"\n{name} = \[(.*?)\]"),
                ("tests/core/test_gemm_config.cpp", rf"{constant}\[\]\[3\] = \{{(.*?)\}};"),
            )
        ]
        assert len(sizes[0]) > least and sizes[0] == sizes[1]
    others = re.search(r"\nOTHERS = \[(.*?)\]", (ROOT / "tests/harness/matrix.py").read_text())[1]
    assert others.replace("(", "{").replace(")", "}") in (ROOT / "tests/core/test_gemm_config.cpp").read_text()
    assert f'NO_LIBRARY = "{gpu_check.NO_LIBRARY}"' in (ROOT / "tests/harness/rows.py").read_text()


def test_a_route_speaks_for_the_bench_of_its_family_only(tmp_path):
    def hashes_with(rule):
        for path, text in (("schema/norm.toml", "[rms_norm]\n"), ("schema/gemm.toml", "[gemm]\n"), (TABLE, rule)):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return {(f, s): sources.family_hash(f, s, tmp_path) for f in ("norm", "gemm") for s in ("test", "bench")}

    before, after = hashes_with("gemm m=1 : gemm_a\n"), hashes_with("gemm m=1 : gemm_b\n")
    assert [key for key in before if before[key] != after[key]] == [("gemm", "bench")]


def spills(folder, *kernels):
    """What tools/spills.py says of a library whose kernels, (mangled name, bytes of stack), a cuobjdump of our own lists."""
    lines = "".join(f" Function {name}:\n  REG:4 STACK:{stack} SHARED:0\n" for name, stack in kernels)
    (folder / "cuobjdump").write_text(f"#!/bin/sh\nprintf '%s' '{lines}'\n")
    (folder / "cuobjdump").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, ROOT / "tools" / "spills.py", "library.so"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_kernels_that_have_come_to_spill_are_named(tmp_path):
    clean, known = ("_ZN2ek4gemmEv", 0), ("_ZN2ek13norm_rows_vecIfLi2EEEvv", 8)
    assert spills(tmp_path, clean, known) == (0, "2 kernels, 1 of them with up to 8 bytes of stack\n")
    code, text = spills(tmp_path, clean, known, ("_ZN2ek13norm_rows_vecIfLi4EEEvv", 400), ("_ZN2ek4mineIfEEvv", 8))
    assert code == 1
    assert text.splitlines()[2:] == [
        "  400 bytes: void ek::norm_rows_vec<float, 4>()",
        "  8 bytes: void ek::mine<float>()",
    ]
    code, text = spills(tmp_path)
    assert code == 1 and "no kernels in library.so" in text
