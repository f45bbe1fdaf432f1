# SPDX-License-Identifier: Apache-2.0
"""`pip install .`: the wheel holds the library and works from wherever it lies."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USE = """
import einkorn, numpy as np
x = np.arange(8, dtype=np.float32).reshape(2, 4)
assert np.allclose(einkorn.relu(x - 3), np.maximum(x - 3, 0))
print(einkorn.__file__, einkorn.last_kernel())
"""


def test_wheel(request, tmp_path):
    if request.config.getoption("--device") == "cuda" or request.config.getoption("--level") == "smoke":
        pytest.skip("a build for the CPU")
    if importlib.util.find_spec("pip") is None:
        pytest.skip(f"{sys.executable} has no pip")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1"]
    options = ["--no-deps", "-C", "cmake.define.EINKORN_CUDA=off", "-w", str(tmp_path)]
    done = subprocess.run([*pip, "wheel", str(ROOT), *options], capture_output=True, text=True, check=False)
    if done.returncode and "scikit-build-core" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no scikit-build-core here, and no network to install it")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("einkorn-*.whl")
    assert "-abi3-" in wheel.name  # one wheel for every Python from 3.11 on
    target = tmp_path / "here"
    zipfile.ZipFile(wheel).extractall(target)
    extra = [n for n in os.listdir(target) if n != "einkorn" and not n.endswith(".dist-info")]
    assert not extra, f"beside the package: {extra}"
    env = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run(
        [sys.executable, "-c", USE], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(target) in done.stdout and "relu_cpu" in done.stdout
