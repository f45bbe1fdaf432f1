# SPDX-License-Identifier: Apache-2.0
"""Device memory for those who have no framework: DeviceArray, made by the library, read by anything that knows DLPack."""

from . import _native
from ._context import context, device_pair
from ._tensor import DTYPES, dtype_code, dtype_name, numpy_dtype


class _Block:
    """An allocation; freed with the last array that views it."""

    def __init__(self, nbytes, device):
        self.type, self.id = device_pair(device)
        self.pointer = _native.memory_alloc(self.type, self.id, nbytes)

    def __del__(self, free=_native.memory_free):  # bound here: at exit the module may be gone
        if getattr(self, "pointer", None):
            free(self.type, self.id, self.pointer)


class DeviceArray:
    """Memory on a device with a dtype, a shape and strides (in elements). Copies go through NumPy:
    einkorn.from_numpy(a, device='cuda'), array.numpy()."""

    def __init__(self, block, pointer, shape, strides, dtype, device):
        self._block, self.pointer = block, pointer
        self.shape, self.strides, self.dtype, self.device = shape, strides, dtype, device

    @classmethod
    def empty(cls, shape, dtype, device="cuda"):
        name, shape = dtype_name(dtype), tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        strides, elements = [], 1
        for n in reversed(shape):
            strides.insert(0, elements)
            elements *= n
        block = _Block(max((elements * DTYPES[name][1] + 7) // 8, 1), device)
        return cls(block, block.pointer, shape, tuple(strides), name, device)

    def view(self, shape, strides, byte_offset=0, dtype=None):
        """Another look at the same memory; strides in elements of dtype."""
        name = dtype_name(dtype or self.dtype)
        return DeviceArray(self._block, self.pointer + byte_offset, tuple(shape), tuple(strides), name, self.device)

    def __dlpack_device__(self):
        return self._block.type, self._block.id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = max_version is not None and max_version[0] >= 1
        code = dtype_code(self.dtype)
        return _native.dlpack(
            self, self.pointer, self._block.type, self._block.id, code, self.shape, self.strides, versioned
        )

    def _dense_bytes(self):
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != expected:
                raise ValueError("only a dense array can be copied whole")
            expected *= n
        return (expected * DTYPES[self.dtype][1] + 7) // 8

    def copy_from(self, array):
        """Fill from a NumPy array of the same bytes; done when this returns."""
        import numpy as np

        array = np.ascontiguousarray(array)
        if array.nbytes != self._dense_bytes():
            raise ValueError(f"{array.nbytes} bytes for an array of {self._dense_bytes()}")
        ctx = context(self.device)
        if array.nbytes:
            _native.memory_copy(ctx._native, self.pointer, array.__array_interface__["data"][0], array.nbytes)
            ctx.synchronize()
        return self

    def numpy(self):
        """A copy in host memory."""
        import numpy as np

        nbytes = self._dense_bytes()
        out = np.empty(self.shape, numpy_dtype(self.dtype))
        ctx = context(self.device)
        if nbytes:
            _native.memory_copy(ctx._native, out.__array_interface__["data"][0], self.pointer, nbytes)
            ctx.synchronize()
        return out

    def fill_bytes(self, value):
        """Set every byte; in order with this thread's other work on the device."""
        if nbytes := self._dense_bytes():
            _native.memory_fill(context(self.device)._native, self.pointer, value, nbytes)
        return self

    def __repr__(self):
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.device})"


def empty(shape, dtype, device="cuda"):
    """Uninitialised memory of the library's own."""
    return DeviceArray.empty(shape, dtype, device)


def from_numpy(array, device="cuda", dtype=None):
    """A copy of a NumPy array on a device."""
    return DeviceArray.empty(array.shape, dtype or array.dtype, device).copy_from(array)
