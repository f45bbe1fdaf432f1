# SPDX-License-Identifier: Apache-2.0
"""Processes: fork, no driver, environment variables. Each in a process of its own."""

import os
import subprocess
import sys
import textwrap

import einkorn

SETUP = """
import os, sys
import numpy as np
import einkorn
x = np.linspace(-3, 3, 100_000, dtype=np.float32).reshape(100, 1000)
want = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
def right(y):
    return bool(np.allclose(y, want, rtol=1e-5, atol=1e-6))
"""


def run(code, **env):
    command = [sys.executable, "-c", SETUP + textwrap.dedent(code)]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)


def passes(code, **env):
    done = run(code, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


FORK = """
pid = os.fork()
if pid == 0:
    os._exit(0 if right(einkorn.rms_norm(x)) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"
assert right(einkorn.rms_norm(x))
"""


def test_fork_before_first_use():
    passes(FORK)


def test_fork_after_use():
    """The thread pool's workers are gone in the child; it must notice."""
    passes("assert right(einkorn.rms_norm(x))" + FORK)


def test_fork_with_cuda(cuda):
    """CUDA does not survive a fork: the child gets an error, its CPU side works."""
    passes("""
    d = einkorn.from_numpy(x, "cuda")
    assert right(einkorn.rms_norm(d).numpy())
    pid = os.fork()
    if pid == 0:
        try:
            einkorn.rms_norm(d)
        except einkorn.Error as e:
            os._exit(0 if e.status == "cuda" and "fork" in str(e) and right(einkorn.rms_norm(x)) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert right(einkorn.rms_norm(d).numpy())
    """)


def test_fork_before_cuda(cuda):
    passes("""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if right(einkorn.rms_norm(einkorn.from_numpy(x, "cuda")).numpy()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """)


def test_without_cuda_devices():
    passes(
        """
        assert [d.device for d in einkorn.devices()] == ["cpu"], einkorn.devices()
        assert right(einkorn.rms_norm(x))
        try:
            einkorn.Context("cuda")
        except einkorn.Error as e:
            assert e.status in ("not_found", "unsupported"), e.status
        else:
            raise SystemExit("a context on a device that is not there")
        """,
        CUDA_VISIBLE_DEVICES="",
    )


def test_import_is_light():
    """Importing makes no CUDA context, starts no thread and loads neither torch nor NumPy."""
    code = """
    import os, sys, threading
    before = len(os.listdir("/proc/self/task"))
    import einkorn
    assert "numpy" not in sys.modules and "torch" not in sys.modules
    assert len(os.listdir("/proc/self/task")) == before, "threads were started"
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_forced_by_environment():
    row = [k.name for k in einkorn.kernels("rms_norm") if k.device == "cpu"][-1]
    passes(f"""
    assert right(einkorn.rms_norm(x))
    assert einkorn.last_kernel() == {row!r}, einkorn.last_kernel()
    """, EINKORN_KERNEL=row)  # fmt: skip


def test_dispatch_log():
    done = passes("einkorn.rms_norm(x)", EINKORN_LOG="dispatch")
    assert "rms_norm T=f32" in done.stderr and "->" in done.stderr


def test_unknown_row_in_the_environment():
    done = run("einkorn.rms_norm(x)", EINKORN_KERNEL="no_such_row")
    assert done.returncode != 0 and "no_such_row" in done.stderr


def test_results_do_not_depend_on_threads():
    """dweight is a sum over rows, which threads share: its bits must not say how many there were."""
    code = """
    y, dw = einkorn.rms_norm_backward(x, x, dweight=True)
    import hashlib
    print(hashlib.sha256(y.tobytes() + dw.tobytes()).hexdigest())
    """
    assert len({passes(code, EINKORN_THREADS=str(n)).stdout for n in (1, 2, 3, 8)}) == 1


def test_products_do_not_depend_on_threads():
    code = """
    a = np.random.default_rng(0).standard_normal((403, 777), np.float32)
    import hashlib
    print(hashlib.sha256(einkorn.gemm(a, a.T).tobytes()).hexdigest(), einkorn.last_kernel())
    """
    found = {passes(code, EINKORN_THREADS=str(n)).stdout for n in (1, 2, 3, 8)}
    assert len(found) == 1 and "blas" not in found.pop()
