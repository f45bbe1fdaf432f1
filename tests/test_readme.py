# SPDX-License-Identifier: Apache-2.0
"""The Python example of README.md runs as printed, and the tour that ./quickstart takes finds its results right. (tests/abi/install
builds the C example.)"""

import re
import runpy
from pathlib import Path

import einkorn

ROOT = Path(__file__).parent.parent


def test_python_example():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})


def test_tour(capsys, monkeypatch):
    cpu = einkorn.devices()[:1]
    monkeypatch.setattr(einkorn, "devices", lambda: cpu)  # on a GPU's sizes NumPy takes long
    tour = runpy.run_path(str(ROOT / "examples" / "tour.py"))
    tour["main"].__globals__["SECONDS"] = 0.0  # one timed call of each op
    assert tour["main"]() == 0, capsys.readouterr().out
