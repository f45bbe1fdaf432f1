# SPDX-License-Identifier: Apache-2.0
"""8 threads, each with 4 streams and a context for each, all ops at once: the bits of a lone thread. Calls go through ctypes,
which lets the other threads run meanwhile: the Python package holds its lock where a call only launches."""

import threading

import einkorn
import numpy as np
from harness import AUTO, Prepared, all_specs, raw
from harness.memory import Arena

THREADS, STREAMS = 8, 4
ROUNDS = {"smoke": 1, "ci": 2, "full": 10}


def in_threads(work):
    """work(t, errors) in all threads at once, and what went wrong."""
    errors = []

    def run(t):
        try:
            work(t, errors)
        except BaseException as e:
            errors.append(f"thread {t}: {e!r}")

    threads = [threading.Thread(target=run, args=(t,)) for t in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, "\n".join(errors[:10])


def test_threads_and_streams(device, level):
    specs = list(all_specs().values())
    prepared = [Prepared(s, s.case(s.combos()[-1], 1024, 0, (16,))) for s in specs]
    alone = [p.run(device, AUTO) for p in prepared]
    nbytes = max(p.nbytes for p in prepared)

    def work(t, errors):
        streams = [einkorn.Stream(device) if device != "cpu" else None for _ in range(STREAMS)]
        arenas = [Arena(device, nbytes, einkorn.Context(device, stream=stream)) for stream in streams]
        contexts = [raw.Context(device, stream) for stream in streams]
        for r in range(ROUNDS[level]):
            for k in range(0, len(prepared), STREAMS):
                batch = [((t * 7 + r + k + s) % len(prepared), arenas[s], contexts[s]) for s in range(STREAMS)]
                for i, arena, context in batch:
                    arena.upload(prepared[i].block)
                    status, message = raw.Call(prepared[i], arena, device).run(context)
                    if status != raw.OK:
                        errors.append(f"thread {t}: {message}")
                for i, arena, _ in batch:
                    if not np.array_equal(arena.download(prepared[i].nbytes), alone[i]):
                        errors.append(f"thread {t}: {prepared[i].spec.op} gave another result")

    in_threads(work)


def test_default_contexts_are_per_thread(device):
    """Calls without ctx= from many threads; each thread's context goes away with it."""
    x = np.arange(4096, dtype=np.float32).reshape(4, 1024)
    want = einkorn.silu(einkorn.from_numpy(x, device)).numpy()
    results = []
    for _ in range(4):
        in_threads(lambda *_: results.append(einkorn.silu(einkorn.from_numpy(x, device)).numpy()))
    assert len(results) == 4 * THREADS
    assert all(np.array_equal(r, want) for r in results)
