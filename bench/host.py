# SPDX-License-Identifier: Apache-2.0
"""Host time of a call beyond a bare kernel launch, from C (the program built from bench/host.cu) and from Python."""

import json
import statistics
import subprocess
import time

FAMILY = "norm"  # whose results carry it: the op is rms_norm
BATCH, BATCHES = 256, 100  # as in host.cu: the queue of launches never fills


def python_ns(einkorn, device):
    torch = device.torch
    x = torch.randn(1, 64, device="cuda").bfloat16()
    weight, y = torch.ones(64, device="cuda").bfloat16(), torch.empty_like(x)
    call, clock = einkorn.rms_norm, time.perf_counter_ns
    samples = []
    for _ in range(BATCHES):
        start = clock()
        for _ in range(BATCH):
            call(x, weight, y=y)
        samples.append((clock() - start) / BATCH)
        torch.cuda.synchronize()
    return statistics.quantiles(samples[BATCHES // 10 :], n=10)[0]  # the fastest tenth, as in host.cu


def measure(einkorn, device, build, log):
    """(ceilings, host entries); both empty where the C program was not built."""
    program = build / "bench" / "host"
    if not program.exists():
        log(f"no {program}: host times and the read ceiling are left out")
        return {}, []
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    if done.returncode:
        log(f"{program} failed: {done.stderr.strip()}")
        return {}, []
    c = json.loads(done.stdout)
    bare = c["bare_launch_ns"]
    entries = [
        {"op": "rms_norm", "language": "c", "ns": round(c["rms_norm_ns"] - bare), "bare_launch_ns": bare},
        {
            "op": "rms_norm",
            "language": "python",
            "ns": round(python_ns(einkorn, device) - bare),
            "bare_launch_ns": bare,
        },
    ]
    return {"read_tb_s": c["read_tb_s"]}, entries
