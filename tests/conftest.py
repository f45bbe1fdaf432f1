# SPDX-License-Identifier: Apache-2.0
"""Options of the suite, the plan of every op test (group x dtypes x row), and the list of rows that never ran."""

import os
from pathlib import Path

import pytest

try:
    import einkorn
except ImportError as e:
    pytest.exit(f"einkorn can't be imported ({e}): run ./test, or set PYTHONPATH to build/<preset>/python", 4)
from einkorn.schema import OPS
from harness import rows
from harness.case import Case
from harness.run import AUTO, Prepared, check_case
from harness.spec import all_specs

LEVELS = ("smoke", "ci", "full")


def pytest_addoption(parser):
    group = parser.getgroup("einkorn")
    level = os.environ.get("EINKORN_TEST_LEVEL", "ci")
    group.addoption("--level", choices=LEVELS, default=level, help="how many cases")
    group.addoption("--device", default="all", help="cpu, cuda or all (default: all that exist)")
    group.addoption("--seed", type=int, default=0, help="of the random cases")
    group.addoption("--row", help="only this row (auto: the dispatcher's own choice)")
    group.addoption("--case", help="only this case, as a failure prints it")
    group.addoption("--shard", help="I/N: the I-th of N parts, counted from 0, so that N processes share the work")


def pytest_configure(config):
    wanted = config.getoption("--device")
    found = [d.device for d in einkorn.devices()]
    if wanted != "all":
        found = [d for d in found if d == wanted or d.startswith(f"{wanted}:")]
        if not found:
            raise pytest.UsageError(f"--device {wanted}: no such device here")
    # One GPU is enough: further ones would repeat the same rows.
    config.devices = [d for d in found if d in ("cpu", "cuda:0") or d == wanted]
    config.planned = set()
    config.filtered = False


class Plan:
    """Some cases of an op on one row."""

    _prepared = (None, [])  # of the last group and dtypes: the rows of a group share inputs and references

    def __init__(self, spec, group, dtypes, device, row, config):
        self.spec, self.group, self.dtypes = spec, group, dtypes
        self.device, self.row, self.config = device, row, config

    def __str__(self):
        row = f"{self.device}-{AUTO}" if self.row == AUTO else self.row
        return "-".join([self.group, *(dtype for _, dtype in self.dtypes), row])

    def cases(self):
        text = self.config.getoption("--case")
        if text is not None:
            return [Case.parse(self.spec.op, text)]
        level, seed = self.config.getoption("--level"), self.config.getoption("--seed")
        return self.spec.cases(self.group, self.dtypes, level, seed)

    def check(self):
        key = (self.spec.op, self.group, self.dtypes)
        if Plan._prepared[0] != key:
            Plan._prepared = (key, [Prepared(self.spec, case) for case in self.cases()])
        taken = [check_case(p, self.device, self.row) for p in Plan._prepared[1]]
        if not taken:
            pytest.skip("no cases")
        if not any(taken):
            lacks = ": " + rows.NO_LIBRARY if rows.lacks_library(self.row) else ""
            pytest.skip(f"{self.row} refused all {len(taken)} cases{lacks}")


def _rows(op, device, config):
    only = config.getoption("--row")
    names = [*(k.name for k in rows.usable(op, device)), AUTO]
    return [n for n in names if only in (None, n)]


def pytest_generate_tests(metafunc):
    config = metafunc.config
    if "plan" in metafunc.fixturenames:
        spec = metafunc.module.SPEC
        config.planned.add(spec.op)
        groups = spec.groups if config.getoption("--case") is None else ("case",)
        combos = spec.combos() if groups == spec.groups else [()]
        level = config.getoption("--level")
        # Rows last: they share what a group prepares.
        plans = [
            Plan(spec, group, dtypes, device, row, config)
            for group in groups for dtypes in combos for device in config.devices
            for row in _rows(spec.op, device, config)
            if (row != AUTO or group in ("shapes", "fuzz", "case")) and spec.wants(group, row, level)
        ]  # fmt: skip
        metafunc.parametrize("plan", plans, ids=str)
    if "op" in metafunc.fixturenames:
        metafunc.parametrize("op", list(OPS))
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", config.devices)


@pytest.fixture
def level(request):
    return request.config.getoption("--level")


@pytest.fixture
def spec(op):
    return all_specs()[op]


@pytest.fixture
def cuda(request):
    """The CUDA device to test on."""
    found = [d for d in request.config.devices if d.startswith("cuda")]
    if not found:
        pytest.skip("no CUDA device")
    return found[0]


@pytest.fixture
def testable_library():
    """Linker arguments for the library with its inside visible, as the C++ unit tests use it."""
    build = Path(einkorn.library_path()).resolve().parents[2]
    archive = build / "libeinkorn_testable.a"
    if not archive.exists():
        pytest.skip(f"{build} was built without its unit tests")
    return [str(archive), *(build / "testable_link.txt").read_text().strip().split(";")]


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--shard"):
        return
    part, parts = map(int, config.getoption("--shard").split("/"))
    # What shares inputs and references stays together.
    plans = [item.callspec.params.get("plan") if hasattr(item, "callspec") else None for item in items]
    units = [(p.spec.op, p.group, p.dtypes) if p else i.nodeid for i, p in zip(items, plans, strict=True)]
    number = {unit: n for n, unit in enumerate(dict.fromkeys(units))}
    config.hook.pytest_deselected(items=[i for i, u in zip(items, units, strict=True) if number[u] % parts != part])
    items[:] = [i for i, u in zip(items, units, strict=True) if number[u] % parts == part]


def pytest_deselected(items):
    for item in items:
        item.config.filtered = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A row that could run here and never did is an untested kernel: the suite fails. Not when only a part was asked for;
    and at level smoke, which is for the sanitizers, only rows of a GPU count."""
    config = session.config
    config.never, config.no_library = rows.never_ran(sorted(config.planned), config.devices)
    smoke = config.getoption("--level") == "smoke"
    missed = [row for row in config.never if not (smoke and "_cpu" in row)]
    part = config.filtered or any(config.getoption(o) is not None for o in ("--row", "--case"))
    part = part or any("::" in a for a in config.args) or session.shouldfail or session.shouldstop
    if missed and not part and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if not config.planned or not hasattr(config, "never") or config.getoption("--row") or config.getoption("--case"):
        return
    kinds, calls = rows.count()
    terminalreporter.section("kernel rows")
    terminalreporter.line(f"{kinds} rows ran in {calls} checked calls on {', '.join(config.devices)}")
    elsewhere = [r for op in sorted(config.planned) for r in rows.unusable(op)]
    if elsewhere:
        terminalreporter.line(f"{len(elsewhere)} rows need another device: {', '.join(elsewhere)}")
    if config.no_library:
        names = ", ".join(config.no_library)
        terminalreporter.line(f"{len(config.no_library)} rows call a library that is not here: {names}")
    if config.never:
        terminalreporter.line(f"{len(config.never)} rows NEVER RAN:", red=True)
        for row in config.never:
            terminalreporter.line(f"  {row}: refused {'; '.join(rows.refusals(row)) or 'nothing, it was never asked'}")
    else:
        terminalreporter.line("no row that can run here was left out")
