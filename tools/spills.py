#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which kernels keep something in memory for want of registers, as cuobjdump finds it in a library built for sm_90a. Fails
where that is more than KNOWN has.

    tools/spills.py build/ci/libeinkorn.so
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Kernel -> the most bytes of a thread's stack in any of its forms. All others have none.
KNOWN = {
    "attention_decode_sm90": 8,
    "attention_sm90": 8,
    "norm_backward_vec": 72,
    "norm_rows_vec": 24,
    "quant_row_kernel": 8,
}
KERNEL = re.compile(r"^ Function (\S+):\n +REG:(\d+) STACK:(\d+)", re.M)
NAME = re.compile(r"ek::(?:\(anonymous namespace\)::)?(\w+)")


def cuobjdump():
    folders = [Path(os.environ["CUDACXX"]).parent] if os.environ.get("CUDACXX") else []
    folders += [*ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu*/bin"), Path("/usr/local/cuda/bin")]
    found = shutil.which("cuobjdump", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)]))
    return found or sys.exit("spills: there is no cuobjdump (nvidia-cuda-cuobjdump of tools/requirements-lint.txt)")


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"spills: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    library = parser.parse_args().library
    kernels = KERNEL.findall(run(cuobjdump(), "--dump-resource-usage", library))
    if not kernels:
        sys.exit(f"spills: no kernels in {library}")
    spilling = [(mangled, int(stack)) for mangled, _, stack in kernels if int(stack)]
    names = run("c++filt", text="\n".join(mangled for mangled, _ in spilling)).splitlines()
    new = []
    for name, (_, stack) in zip(names, spilling, strict=True):
        short = NAME.search(name)
        if stack > KNOWN.get(short[1] if short else "", 0):
            new.append(f"  {stack} bytes: {name}")
    most = max((stack for _, stack in spilling), default=0)
    print(f"{len(kernels)} kernels, {len(spilling)} of them with up to {most} bytes of stack")
    if new:
        sys.exit("\n".join(["spills: more than is known (KNOWN in tools/spills.py):", *new]))


if __name__ == "__main__":
    main()
