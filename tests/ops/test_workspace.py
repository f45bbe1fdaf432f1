# SPDX-License-Identifier: Apache-2.0
"""Every row with exactly the workspace it needs, poisoned and guarded; and with one byte less."""

import functools
import re

import einkorn
import numpy as np
import pytest
from harness import MatrixSpec, Prepared, over_rows, rows
from harness.memory import GUARD, GUARD_BYTE, Arena

SHARDS = 2  # processes of tools/gpu-check
SANITIZERS = ("memcheck",)  # under which it runs there too

SIZES = [(129, (37,)), (4096, (300,)), (1024, (2, 3))]
SMOKE = (129, 0, (37,))
# Rows that need workspace at some sizes only. Some case must have such a size, or they would not be tried.
SOMETIMES = ("_gemv", "_sm90_swap")


def some_dtypes(spec, level):
    """All at level full; else the last, and bf16 throughout: many rows have 16 bits only."""
    combos = spec.combos()
    if level == "smoke":
        return combos[-1:]
    return [c for c in combos if level == "full" or c == combos[-1] or {d for _, d in c} == {"bf16"}]


def cases_of(spec, dtypes, device):
    ordinary = [spec.case(dtypes, n, 0, lead) for n, lead in SIZES]
    return [*ordinary, *spec.probes(dtypes), *products(spec, dtypes, device)]


def products(spec, dtypes, device):
    """With few rows of a: two whose k is cut, b by columns and by rows; and one of a tile more than there are SMs, which
    then share the tiles. And, in f32, the least that is worth a call of a BLAS on the CPU."""
    if not isinstance(spec, MatrixSpec):
        return []
    (processors,) = (d.processors for d in einkorn.devices() if d.device == device)
    columns = "columns:" + ",".join(spec.layouts[0])
    sizes = [((5, 16, 5128), columns), ((5, 16, 5128), "dense"), ((5, 128 * processors + 8, 64), columns)]
    if {d for _, d in dtypes} == {"f32"}:
        sizes.append(((512, 512, 512), "dense"))
    return [spec.case(dtypes, size, 0, strides=strides) for size, strides in sizes]


def needed_by(prepared, context, arena, row):
    """The bytes the forced row asks for, from its refusal to work with one byte. None: it does not take the case."""
    context.set_workspace(einkorn.empty((256,), "u8", context.device).view((1,), (1,)))
    try:
        prepared.call(arena, context)
    except einkorn.Error as e:
        if e.status == "unsupported":
            rows.refused(row, str(e).partition("refuses: ")[2])
            return None
        assert e.status == "workspace", e
        return int(re.search(r"needs (\d+) bytes", str(e)).group(1))
    finally:
        context.set_workspace(None)
    return 0


def test_exact_workspace(spec, device, level):
    contexts = {tf32: einkorn.Context(device, flags=("tf32",) * tf32) for tf32 in (False, True)}
    prepare = functools.cache(lambda case: Prepared(spec, case))
    wanted, most, needs = some_dtypes(spec, level), {}, {}  # case -> what the query says, what each row needs

    def check(row, case):
        prepared, context = prepare(case), contexts[rows.needs_tf32(spec.op, row)]
        arena = Arena.at_least(device, prepared.nbytes)
        arena.upload(prepared.block)
        most[case] = context.workspace(spec.op, **prepared.arguments(arena))
        context.force(spec.op, row)
        need = needed_by(prepared, context, arena, row)
        if need:
            check_exact(prepared, context, arena, row, need)
        context.force(spec.op, None)
        needs.setdefault(case, {})[row] = need or 0
        return need is not None

    names = [k.name for k in rows.usable(spec.op, device)]
    if level == "smoke":
        for row in names:
            check(row, spec.case(wanted[0], *SMOKE))
    else:
        over_rows(spec, names, wanted, check, lambda dtypes: cases_of(spec, dtypes, device))
    for case, found in needs.items():
        high = max(found.values())
        # Not all rows were asked about the other dtypes.
        right = high == most[case] if case.dtypes in wanted else high <= most[case]
        assert right, f"the query says {most[case]}, rows need {found}, {case}"
    tried = {row for found in needs.values() for row, need in found.items() if need}
    missed = [row for row in names if row.endswith(SOMETIMES) and row not in tried]
    assert level == "smoke" or not missed, f"no case in which they need a workspace: {', '.join(missed)}"
    if not tried:
        pytest.skip("no row needs a workspace")


def check_exact(prepared, context, arena, row, need):
    block = np.full(need + 2 * GUARD, GUARD_BYTE, np.uint8)
    block[GUARD : GUARD + need] = 0xFF
    lent = einkorn.from_numpy(block, context.device)
    for nbytes in (need - 1, need):
        context.set_workspace(lent.view((nbytes,), (1,), GUARD))
        arena.upload(prepared.block)
        if nbytes < need:
            with pytest.raises(einkorn.Error, match=f"needs {need} bytes") as e:
                prepared.call(arena, context)
            assert e.value.status == "workspace"
            assert np.array_equal(arena.download(prepared.nbytes), prepared.block), f"{row} wrote, {prepared.case}"
        else:
            prepared.call(arena, context)
            try:
                prepared.check(arena.download(prepared.nbytes), rows.needs_tf32(prepared.spec.op, row))
            except AssertionError as e:
                raise AssertionError(f"{e}, {row}, {prepared.case}") from None
            after = lent.numpy()
            same = (after[:GUARD] == GUARD_BYTE).all() and (after[GUARD + need :] == GUARD_BYTE).all()
            assert same, f"{row} wrote beside its workspace, {prepared.case}"
    context.set_workspace(None)


def test_workspace_misuse(device):
    context = einkorn.Context(device)
    scratch = einkorn.empty((1024,), "u8", device)
    with pytest.raises(einkorn.InvalidArgument):
        context.set_workspace(scratch.view((512,), (1,), 8))  # not 256-byte aligned
    context.reserve(1 << 16)
