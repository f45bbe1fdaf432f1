# SPDX-License-Identifier: Apache-2.0
"""Every row with exactly the workspace it needs, poisoned and guarded; and with one byte less."""

import re

import einkorn
import numpy as np
import pytest
from harness import Prepared, rows
from harness.memory import GUARD, GUARD_BYTE, Arena


def needed_by(prepared, context, arena, scratch):
    """The bytes the forced row asks for, from its refusal to work with one byte."""
    context.set_workspace(scratch.view((1,), (1,)))
    try:
        prepared.call(arena, context)
    except einkorn.Error as e:
        if e.status == "unsupported":
            return None
        assert e.status == "workspace", e
        return int(re.search(r"needs (\d+) bytes", str(e)).group(1))
    return 0


def test_exact_workspace(spec, device, level):
    context, tried = einkorn.Context(device), 0
    for i, (n, lead) in enumerate([(129, (37,)), (4096, (300,)), (1024, (2, 3))]):
        if level == "smoke" and i:
            break
        for dtypes in spec.combos() if level == "full" else spec.combos()[-1:]:
            prepared = Prepared(spec, spec.case(dtypes, n, 0, lead))
            arena = Arena.at_least(device, prepared.nbytes)
            for row in rows.usable(spec.op, device):
                context.force(spec.op, row.name)
                tried += check_row(prepared, context, arena, device)
                context.force(spec.op, None)
    if not tried:
        pytest.skip("no row needs a workspace")


def check_row(prepared, context, arena, device):
    scratch = einkorn.empty((256,), "u8", device)
    arena.upload(prepared.block)
    need = needed_by(prepared, context, arena, scratch)
    context.set_workspace(None)
    if need is None:
        return 0
    most = context.workspace(prepared.spec.op, **prepared.arguments(arena))
    assert need <= most, f"the query says {most}, the row needs {need}"
    if need == 0:
        return 0
    block = np.full(need + 2 * GUARD, GUARD_BYTE, np.uint8)
    block[GUARD : GUARD + need] = 0xFF
    lent = einkorn.from_numpy(block, device)
    for nbytes in (need - 1, need):
        context.set_workspace(lent.view((nbytes,), (1,), GUARD))
        arena.upload(prepared.block)
        if nbytes < need:
            with pytest.raises(einkorn.Error, match=f"needs {need} bytes") as e:
                prepared.call(arena, context)
            assert e.value.status == "workspace"
            assert np.array_equal(arena.download(prepared.nbytes), prepared.block), "outputs were written"
        else:
            prepared.call(arena, context)
            prepared.check(arena.download(prepared.nbytes))
            after = lent.numpy()
            assert (after[:GUARD] == GUARD_BYTE).all() and (after[GUARD + need :] == GUARD_BYTE).all()
    context.set_workspace(None)
    return 1


def test_workspace_misuse(device):
    context = einkorn.Context(device)
    scratch = einkorn.empty((1024,), "u8", device)
    with pytest.raises(einkorn.InvalidArgument):
        context.set_workspace(scratch.view((512,), (1,), 8))  # not 256-byte aligned
    context.reserve(1 << 16)
