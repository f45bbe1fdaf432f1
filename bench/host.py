# SPDX-License-Identifier: Apache-2.0
"""Host time of a call beyond a bare kernel launch, from C (the library built from bench/host.cu) and from Python."""

import ctypes
import statistics
import time

FAMILY = "norm"  # whose results carry it: the op is rms_norm
BATCH, BATCHES = 256, 100  # as in host.cu: the queue of launches never fills


class Failed(RuntimeError):
    """The library has said why."""


def call(function, count):
    values = (ctypes.c_double * count)()
    at = [ctypes.byref(values, i * ctypes.sizeof(ctypes.c_double)) for i in range(count)]
    if function(*at):
        raise Failed(function.__name__)
    return list(values)


def fastest_tenth(samples):
    return statistics.quantiles(samples[BATCHES // 10 :], n=10)[0]  # as in host.cu


def python_ns(einkorn, device, library):
    """Of a call and of a bare launch. Batches take turns, as in host.cu."""
    torch = device.torch
    x = torch.randn(1, 64, device="cuda").bfloat16()
    weight, y = torch.ones(64, device="cuda").bfloat16(), torch.empty_like(x)
    rms_norm, clock = einkorn.rms_norm, time.perf_counter_ns
    calls, bare = [], []
    for _ in range(BATCHES):
        bare += call(library.bench_bare_batch, 1)
        start = clock()
        for _ in range(BATCH):
            rms_norm(x, weight, y=y)
        calls.append((clock() - start) / BATCH)
        torch.cuda.synchronize()
    return fastest_tenth(calls), fastest_tenth(bare)


def entry(language, ns, bare):
    return {"op": "rms_norm", "language": language, "ns": round(ns - bare), "bare_launch_ns": round(bare)}


def measure(einkorn, device, build, log):
    """(ceilings, host entries); both empty where the library was not built."""
    path = build / "bench" / "libhost.so"
    if not path.exists():
        log(f"no {path}: host times and the read ceiling are left out")
        return {}, []
    try:
        library = ctypes.CDLL(str(path))
        bare, ns, read = call(library.bench_host, 3)
        return {"read_tb_s": round(read, 3)}, [
            entry("c", ns, bare),
            entry("python", *python_ns(einkorn, device, library)),
        ]
    except (OSError, Failed) as error:
        log(f"host times and the read ceiling are left out: {error}")
        return {}, []
