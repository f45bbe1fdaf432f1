# SPDX-License-Identifier: Apache-2.0
"""The Python example of README.md runs as printed. (tests/abi/install builds the C one.)"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_python_example():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
