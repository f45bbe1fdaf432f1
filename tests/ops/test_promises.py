# SPDX-License-Identifier: Apache-2.0
"""What rows declare, bit for bit: the same result every time, and the same result for a row whatever batch it is in."""

import dataclasses
import zlib

import einkorn
import numpy as np
import pytest
from harness import AUTO, Prepared, Refused, rows

SHARDS = 8  # processes of tools/gpu-check

RUNS = {"smoke": 10, "ci": 100, "full": 100}
MANY = 1000  # entries: more than two blocks for each SM, past which a kernel may load its weights in another order
HEAVY = 16 << 20  # bytes of 128 entries
BATCHES = {"smoke": [1, 3], "ci": [1, 2, 3, 7, 8, 17, 64, 127], "full": [1, 2, 3, 7, 8, 17, 33, 64, 100, 127]}


def some_dtypes(spec, level):
    """All at level full; else one, another one for each op."""
    combos = spec.combos()
    return combos if level == "full" else [combos[zlib.crc32(spec.op.encode()) % len(combos)]]


def test_deterministic(spec, device, level):
    context = einkorn.Context(device, flags=("deterministic", "tf32"))
    for dtypes in some_dtypes(spec, level):
        prepared = Prepared(spec, spec.case(dtypes, 1000, 0, (67,)))
        for row in [*(k.name for k in rows.usable(spec.op, device) if k.deterministic), AUTO]:
            try:
                first = prepared.run(device, row, context)
                for _ in range(RUNS[level] - 1):
                    again = prepared.run(device, row, context)
                    assert np.array_equal(again, first), f"{row}: another result, {prepared.case}"
            except Refused:
                continue


def batch_of(spec, case):
    """A function: the case with another number of entries in its batch dim."""
    name = spec.schema.batch[0]
    if name == "...":
        return lambda n: dataclasses.replace(case, lead=(n,))
    return lambda n: dataclasses.replace(case, dims=tuple((k, n if k == name else v) for k, v in case.dims))


def test_batch_invariant(spec, device, level):
    if not spec.schema.batch:
        pytest.skip("no batch dimension")
    batch, context = spec.schema.batch[0], einkorn.Context(device, flags=("batch_invariant", "tf32"))
    for n in (1031, 96, 4096) if level == "full" else (1031, 96):
        for i, dtypes in enumerate(some_dtypes(spec, level)):
            size = n if spec.schema.has_lead and len(spec.schema.free_dims) == 1 else n // 16  # an entry has other dims
            case_of = batch_of(spec, spec.case(dtypes, size, 0, (128,)))
            full = Prepared(spec, case_of(128))
            heavy = sum(v.nbytes for k, v in full.inputs.items() if batch in full.tensors[k].dims) > HEAVY
            # At level full every batch once; the rest, which differs little, and whole matrices by samples.
            every = level == "full" and n == 1031 and i == 0 and not heavy
            batches = range(1, 128) if every else BATCHES[level]
            for row in [*(k.name for k in rows.usable(spec.op, device) if k.batch_invariant), AUTO]:
                try:
                    whole = full.results(full.run(device, row, context))
                except Refused:
                    continue
                for b in [*batches, MANY] if device != "cpu" and n != 1031 and not heavy else batches:
                    entries = np.arange(b) % 128
                    inputs = {k: v[entries] if batch in full.tensors[k].dims else v for k, v in full.inputs.items()}
                    part = Prepared(spec, case_of(b), inputs)
                    try:
                        got = part.results(part.run(device, row, context))
                    except Refused:
                        continue
                    for name, (values, _) in got.items():
                        if batch in full.tensors[name].dims:
                            same = values.tobytes() == np.ascontiguousarray(whole[name][0][entries]).tobytes()
                            assert same, f"{row}: {name} differs in a batch of {b} from one of 128, {part.case}"
