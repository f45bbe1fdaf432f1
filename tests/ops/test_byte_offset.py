# SPDX-License-Identifier: Apache-2.0
"""Every op with tensors that begin at data + byte_offset, as DLPack has them: the bits of the same memory without offsets."""

import numpy as np
from harness import Prepared, raw
from harness.memory import GUARD, Arena

OFFSETS = (256, 1)  # 1: data is no multiple of an element, only where the tensor begins
assert max(OFFSETS) < GUARD  # a kernel that reads from data itself finds NaN, and its results are beside the outputs


def run(prepared, arena, device, context, offset):
    """The memory after the call, and the row that ran."""
    arena.upload(prepared.block)
    call = raw.Call(prepared, arena, device)
    for t in call.tensors.values():
        t.data -= offset
        t.byte_offset = offset
    assert call.run(context) == (raw.OK, ""), f"byte_offset {offset}"
    return arena.download(prepared.nbytes), raw.library().ek_kernel_last(context.handle)


def test_byte_offset(spec, device):
    context = raw.Context(device)
    prepared = Prepared(spec, spec.case(spec.combos()[-1], 64, 0, (3, 2)))
    arena = Arena.at_least(device, prepared.nbytes)
    plain, row = run(prepared, arena, device, context, 0)
    prepared.check(plain)
    for offset in OFFSETS:
        after, other = run(prepared, arena, device, context, offset)
        assert other == row, f"byte_offset {offset} selects {other}, not {row}"
        assert np.array_equal(after, plain), f"byte_offset {offset}, {row}, {prepared.case}"
