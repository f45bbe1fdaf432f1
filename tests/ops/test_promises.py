# SPDX-License-Identifier: Apache-2.0
"""What rows declare, bit for bit: the same result every time, and the same result for a row whatever batch it is in."""

import functools
import zlib

import einkorn
import numpy as np
import pytest
from harness import AUTO, Prepared, Refused, batch_of, check_batches, over_rows, rows

SHARDS = 8  # processes of tools/gpu-check

RUNS = {"smoke": 10, "ci": 100, "full": 100}
MANY = 1000  # entries: more than two blocks for each SM, past which a kernel may load its weights in another order
FEW, MANY_PROBES = 5, 64  # entries of a probe: a cluster of 8 blocks has one entry
HEAVY = 16 << 20  # bytes of 128 entries
BATCHES = {"smoke": [1, 3], "ci": [1, 2, 3, 7, 8, 17, 64, 127], "full": [1, 2, 3, 7, 8, 17, 33, 64, 100, 127]}


def some_dtypes(spec, level):
    """All at level full; else one, another one for each op."""
    combos = spec.combos()
    return combos if level == "full" else [combos[zlib.crc32(spec.op.encode()) % len(combos)]]


def test_deterministic(spec, device, level):
    context = einkorn.Context(device, flags=("deterministic", "tf32"))
    usual = {"n": 1000, "lead": (67,)}
    ordinary = [spec.probes(dtypes, **usual)[0] for dtypes in spec.combos()]
    prepare = functools.cache(lambda case: Prepared(spec, case))

    def check(row, case):
        prepared = prepare(case)
        try:
            first = prepared.run(device, row, context)
        except Refused:
            return False
        # The rows of the CPU all take the ordinary case; the others are large.
        for _ in range((RUNS[level] if device != "cpu" or case in ordinary else 10) - 1):
            again = prepared.run(device, row, context)
            assert np.array_equal(again, first), f"{row}: another result, {prepared.case}"
        return True

    promised = [k.name for k in rows.usable(spec.op, device) if k.deterministic]
    over_rows(spec, [*promised, AUTO], some_dtypes(spec, level), check, lambda dtypes: spec.probes(dtypes, **usual))


def test_batch_invariant(spec, device, level):
    if not spec.schema.batch:
        pytest.skip("no batch dimension")
    batch, context = spec.schema.batch[0], einkorn.Context(device, flags=("batch_invariant", "tf32"))
    promised = [*(k.name for k in rows.usable(spec.op, device) if k.batch_invariant), AUTO]
    for n in (1031, 96, 4096) if level == "full" else (1031, 96):
        for dtypes in some_dtypes(spec, level):
            size = n if spec.schema.has_lead and len(spec.schema.free_dims) == 1 else n // 16  # an entry has other dims
            full = Prepared(spec, spec.with_batch(spec.case(dtypes, size, 0, (128,)), 128))
            heavy = sum(v.nbytes for k, v in full.inputs.items() if batch in full.tensors[k].dims) > HEAVY
            # At level full every batch, of rows that are no whole vectors and of those that are, in the first and the last
            # dtypes (of 32 and 16 bits); the rest, which differs little, and whole matrices by samples.
            every = level == "full" and n != 4096 and dtypes in (spec.combos()[0], spec.combos()[-1]) and not heavy
            batches = [*(range(1, 128) if every else BATCHES[level])]
            if device != "cpu" and n != 1031 and not heavy:
                batches.append(MANY)
            shared = batch_of if heavy else functools.cache(batch_of)
            for row in promised:
                check_batches(full, device, row, context, batches, shared)

    # And the rows that those sizes are not for
    prepare = functools.cache(lambda case: Prepared(spec, spec.with_batch(case, FEW)))
    few = [1, 3] if device == "cpu" else [1, 3, MANY_PROBES]
    over_rows(
        spec,
        promised,
        some_dtypes(spec, level),
        lambda row, case: check_batches(prepare(case), device, row, context, few),
    )
    for n, entries in spec.crowds if device != "cpu" else ():
        for dtypes in some_dtypes(spec, level):
            full = Prepared(spec, spec.case(dtypes, n, 0, (FEW,)))
            for row in promised:
                check_batches(full, device, row, context, [entries])
