# SPDX-License-Identifier: Apache-2.0
"""tools/setup.sh: what it finds, and what it says where something is missing and can't be fetched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ("bash", "basename", "cat", "dirname", "head", "mkdir", "rm", "sed", "sha256sum", "sort")  # what it calls


class Machine:
    """A made-up machine: a copy of the script, and a PATH with what the test puts there."""

    def __init__(self, folder):
        self.root, self.bin = folder / "tree", folder / "bin"
        (self.root / "tools").mkdir(parents=True)
        self.bin.mkdir()
        for file in (ROOT / "tools").glob("requirements*.txt"):
            shutil.copy(file, self.root / "tools")
        shutil.copy(ROOT / "tools/setup.sh", self.root / "tools")
        for name in SYSTEM:
            (self.bin / name).symlink_to(shutil.which(name))

    def program(self, path, text):
        """An executable of that text; a plain name is on the PATH."""
        file = self.bin / path  # an absolute path stays what it is
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    def python(self, path="python3", *, site=True):
        """The Python of this test, or one without any packages."""
        packages = f'PYTHONPATH="{os.pathsep.join(filter(None, sys.path))}"' if site else ""
        return self.program(path, f'{packages} exec "{sys.executable}" {"" if site else "-I -S"} "$@"')

    def tools(self, *names):
        for name in names:
            self.program(name, "echo cmake version 3.31.6" if name == "cmake" else "exit 0")

    def nvcc(self, path, release):
        return self.program(path, f"echo 'Cuda compilation tools, release {release}, V{release}.1'")

    def run(self, script, **env):
        """Exit code, stdout, stderr."""
        own = {"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/"), **env}
        command = ["bash", "-euc", f"source tools/setup.sh; {script}"]
        done = subprocess.run(command, cwd=self.root, env=own, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def set_up(self, script):
        """ek_setup on a machine that has compilers, CMake and the headers of Python."""
        self.tools("cmake")
        return self.run(f"check_tools() {{ :; }}; ek_setup {script}")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    "have, want, enough",
    [("3.24", "3.24", True), ("3.31.6", "3.24", True), ("13.0", "12.9", True), ("12.10", "12.9", True),
     ("12.8", "12.9", False), ("3.9", "3.24", False), ("0", "3.24", False)],
)  # fmt: skip
def test_versions_are_compared_number_by_number(machine, have, want, enough):
    code, _, _ = machine.run(f"at_least {have} {want}")
    assert (code == 0) == enough


def test_modules_of_a_python(machine):
    python = machine.python()
    assert machine.run(f"has_modules {python} json pytest")[0] == 0
    assert machine.run(f"has_modules {python} json no_such_module")[0] != 0
    assert machine.run(f"lacking_modules {python} no_such_module json nor_this")[1] == "no_such_module nor_this"
    assert machine.run(f"has_modules {machine.program('broken', 'exit 1')} json")[0] != 0


def test_an_old_python_is_passed_over(machine):
    machine.program("python3", "exit 1")  # as its own test of the version ends
    newer = machine.python("python3.12")
    assert machine.run("find_python")[1] == str(newer)


def test_a_newer_python_is_asked_for_beside_an_old_one(machine):
    machine.tools("cc", "c++", "cmake", "ninja", "apt-get")
    machine.program("id", "echo 1000")
    machine.program("python3", "exit 1")
    code, _, error = machine.run("check_tools 1")
    assert code == 1 and "missing packages: python3.11 python3.11-dev python3.11-venv" in error, error


@pytest.mark.parametrize("chosen", ["python3", "python3.12"])
def test_headers_and_venv_are_those_of_the_python_that_is_chosen(machine, chosen):
    machine.tools("cc", "c++", "cmake", "ninja", "apt-get")
    machine.program("id", "echo 1000")
    machine.program("python3", "exit 1")
    # New enough, without headers and without venv
    machine.program(chosen, 'case "$2" in *version_info*) exit 0 ;; *) exit 1 ;; esac')
    code, _, error = machine.run("check_tools 1")
    assert code == 1 and f"missing packages: {chosen}-dev {chosen}-venv." in error, error


def test_the_first_nvcc_that_is_new_enough(machine, tmp_path):
    old, path = machine.nvcc(tmp_path / "old/nvcc", "12.4"), machine.nvcc("nvcc", "13.0")
    home = machine.nvcc(tmp_path / "cuda/bin/nvcc", "12.9")
    assert machine.run("find_nvcc", CUDACXX=str(home))[1] == str(home)
    assert machine.run("find_nvcc", CUDACXX=str(old))[1] == str(path)
    machine.nvcc("nvcc", "12.8")
    assert machine.run("find_nvcc", CUDACXX=str(old), CUDA_HOME=str(tmp_path / "cuda"))[1] == str(home)
    # Neither; a machine may have a real one where CUDA usually is.
    assert machine.run("find_nvcc", CUDACXX=str(old))[1] in ("", "/usr/local/cuda/bin/nvcc")


def test_missing_packages_are_named_to_who_can_not_install_them(machine):
    machine.python()
    machine.tools("cc", "c++", "cmake")
    code, _, error = machine.run("check_tools 0")
    assert code == 1 and "missing: ninja-build" in error and "package manager" in error, error
    machine.tools("apt-get")
    machine.program("id", "echo 1000")
    code, _, error = machine.run("check_tools 0")
    assert code == 1 and "Run as root:  apt-get install" in error and "cmake" not in error, error


def test_an_old_cmake_is_replaced_by_one_in_a_venv(machine):
    """Which takes Python's venv, asked for with the other packages; one that is there already is found."""
    machine.python()
    machine.program("cmake", "echo cmake version 3.18.4")
    code, out, error = machine.run('check_tools() { echo "venv $1"; exit; }; ek_setup')
    assert (code, out) == (0, "venv 1"), error
    install = 'venv_install() { echo "$1"; }'
    code, out, error = machine.run(f"check_tools() {{ :; }}; {install}; ek_setup")
    assert (code, out) == (0, "tools/requirements-build.txt"), error
    (machine.bin / "cmake").unlink()
    machine.program(machine.root / ".venv/bin/cmake", "echo cmake version 3.31.6")
    code, out, error = machine.run(f"check_tools() {{ echo venv $1; }}; {install}; ek_setup; cmake --version")
    assert (code, out.splitlines()[0], out.splitlines()[-1]) == (0, "venv 0", "cmake version 3.31.6"), error


def test_what_is_there_is_used_as_it_is(machine):
    python, nvcc = machine.python(), machine.nvcc("nvcc", "13.0")
    code, out, error = machine.set_up('test cuda; echo "$PY $CUDACXX"')
    assert (code, out) == (0, f"{python} {nvcc}"), error
    assert not (machine.root / ".venv").exists()


def test_without_a_network_it_says_what_is_missing(machine):
    python = machine.python(site=False)
    machine.program(machine.root / ".venv/bin/python", '[ "$1" != -m ]')  # a venv whose pip fails
    code, _, error = machine.set_up("test")
    assert code == 1 and f"missing: numpy pytest (of {python})" in error and "is there a network" in error
    machine.python()
    code, _, error = machine.set_up("test lint")
    assert code == 1 and "missing: clang-format and ruff" in error


def test_a_copy_of_pytest_in_the_build_folder_will_do(machine):
    # A Python that sees PYTHONPATH and nothing else, with a NumPy of its own
    python = machine.program("python3", f'PYTHONPATH="{machine.root}/own:$PYTHONPATH" exec "{sys.executable}" -S "$@"')
    for package in (machine.root / "own/numpy", machine.root / "build/cuda/site/pytest"):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    code, out, error = machine.set_up('test; echo "$PY"')
    assert (code, out) == (0, str(python)), error
