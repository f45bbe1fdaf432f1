# SPDX-License-Identifier: Apache-2.0
"""All tensors of a case in one block of bytes, each between guard bands. The block is made in host memory, copied to the
device, handed to the op in pieces, and copied back whole: whatever an op wrote where it must not is then seen."""

import einkorn
import numpy as np
from einkorn import _native

from .dtypes import ITEMSIZE, STORAGE

GUARD = 4096  # bytes on either side of every tensor
GUARD_BYTE = 0xA5  # beside what is written: no result looks like this
INPUT_BYTE = 0xFF  # beside and between rows of what is only read: NaN, which spoils every result it gets into


class Placed:
    """Where one tensor lies in the block."""

    def __init__(self, start, shape, strides, dtype):
        self.start, self.shape, self.strides, self.dtype = start, tuple(shape), tuple(strides), dtype
        self.elements = 0 if 0 in self.shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        self.nbytes = self.elements * ITEMSIZE[dtype]
        self.end = start + self.nbytes

    def view(self, block):
        """The tensor inside a host copy of the block."""
        if not self.elements:
            return np.empty(self.shape, STORAGE[self.dtype])
        size = ITEMSIZE[self.dtype]
        flat = block[self.start : self.end].view(STORAGE[self.dtype])
        return np.lib.stride_tricks.as_strided(flat, self.shape, [s * size for s in self.strides])

    def on(self, arena):
        return arena.array.view(self.shape, self.strides, self.start, self.dtype)


def dense(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    return tuple(strides)


def strided(shape, free_last, rng, gaps=(0, 0, 1, 3, 16, 64)):
    """Strides of a random order of the dims with random gaps; the last dim stays contiguous unless free_last."""
    last = len(shape) - 1
    order = list(rng.permutation(len(shape)))
    if not free_last and shape:
        order.remove(last)
        order.insert(0, last)
    strides, step = [0] * len(shape), 1 + int(rng.integers(3)) * (free_last and len(shape) > 0)
    for d in order:
        strides[d] = step
        # Half of the gaps keep 16-byte rows aligned, so that vector rows have something to do as well.
        step = step * max(shape[d], 1) + int(rng.choice(gaps))
    return tuple(strides)


def broadcast(shape, lead, rng):
    """Dense, but one leading dim repeats."""
    strides = list(dense(shape))
    if lead:
        strides[int(rng.integers(lead))] = 0
    return tuple(strides)


PADDED = -1


def by_lines(shape, columns, gap):
    """Rows (with `columns`: columns) of matrices one after the other, `gap` elements between them; PADDED: so many more than they
    take that each begins at a multiple of 16 elements, whatever its length."""
    strides, step = [0] * len(shape), 1
    dims = list(range(len(shape)))[::-1]
    if columns:
        dims[:2] = dims[1::-1]
    for i, d in enumerate(dims):
        strides[d] = step
        step = step * max(shape[d], 1)
        if i == 0:
            step = step // 16 * 16 + 32 if gap == PADDED else step + gap
    return tuple(strides)


class Arena:
    """Device memory for cases, and the context that copies to and from it."""

    _of = {}

    def __init__(self, device, nbytes, context=None):
        self.array = einkorn.empty((nbytes,), "u8", device)
        self.context = context or einkorn.Context(device)
        self._tf32 = None

    def context_for(self, needs_tf32):
        """A context that allows what a row needs."""
        if needs_tf32 and self._tf32 is None:
            self._tf32 = einkorn.Context(self.context.device, flags="tf32")
        return self._tf32 if needs_tf32 else self.context

    @classmethod
    def at_least(cls, device, nbytes):
        """The one that cases take turns in; it grows with the largest."""
        arena = cls._of.get(device)
        if arena is None or arena.array.shape[0] < nbytes:
            cls._of.pop(device, None)
            arena = cls._of[device] = cls(device, max(nbytes, 1 << 22) * 5 // 4)
        return arena

    def upload(self, block, start=0):
        _native.memory_copy(self.context._native, self.array.pointer + start, _address(block), block.nbytes)

    def download(self, nbytes, start=0):
        block = np.empty(nbytes, np.uint8)
        _native.memory_copy(self.context._native, _address(block), self.array.pointer + start, nbytes)
        self.context.synchronize()
        return block


def _address(block):
    return block.__array_interface__["data"][0]
