# SPDX-License-Identifier: Apache-2.0
"""Arrays by schema dtype name, from torch on a GPU or from NumPy on the CPU, so that one reference serves both."""

import math

# Unit roundoff of a stored value. f32 is 2^-24 itself; 2^-18 leaves room for sums over a row, whose order is free.
ROUNDOFF = {"f32": 2.0**-18, "f16": 2.0**-11, "bf16": 2.0**-8}


class TorchArrays:
    """What reference.py and run.py need from torch."""

    def __init__(self, device="cuda"):
        import torch

        self.torch = self.xp = torch
        self.device = device
        self.dtypes = {
            "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
            "e4m3": torch.float8_e4m3fn, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
        }  # fmt: skip
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(1)

    def randn(self, shape, dtype):
        values = self.torch.randn(shape, generator=self.generator, device=self.device)
        return values.to(self.dtypes[dtype])

    def empty(self, shape, dtype):
        return self.torch.empty(shape, dtype=self.dtypes[dtype], device=self.device)

    def poison(self, x):
        """Fill with a pattern that no op writes, so that a result left unwritten is seen. x is dense, by rows or columns."""
        (x if x.is_contiguous() else x.mT).view(self.torch.uint8).fill_(0x7F)

    def copy(self, x):
        return x.clone()

    def f64(self, x):
        return x.to(self.torch.float64)

    def to_numpy(self, x):
        return x.cpu().numpy()

    def from_numpy(self, x):
        return self.torch.from_numpy(x).to(self.device)

    def round(self, x, dtype):
        """x as it reads after being stored as dtype."""
        return x.to(self.torch.float32).to(self.dtypes[dtype]).to(self.torch.float64)

    def erf(self, x):
        return self.torch.erf(x)

    def assign(self, dst, src):
        dst.copy_(src)

    def fill(self, dst, values):
        """A list of numbers, in order."""
        dst.copy_(self.torch.tensor(values).reshape(dst.shape))


class NumpyArrays:
    """The same from NumPy and ml_dtypes."""

    def __init__(self):
        import ml_dtypes
        import numpy

        self.xp = numpy
        self.dtypes = {
            "f64": numpy.float64, "f32": numpy.float32, "f16": numpy.float16, "bf16": ml_dtypes.bfloat16,
            "e4m3": ml_dtypes.float8_e4m3fn, "i8": numpy.int8, "i32": numpy.int32, "i64": numpy.int64,
        }  # fmt: skip
        self.generator = numpy.random.default_rng(1)

    def randn(self, shape, dtype):
        return self.generator.standard_normal(shape, dtype=self.xp.float32).astype(self.dtypes[dtype])

    def empty(self, shape, dtype):
        return self.xp.empty(shape, dtype=self.dtypes[dtype])

    def poison(self, x):
        (x if x.flags.c_contiguous else x.swapaxes(-1, -2)).view(self.xp.uint8)[...] = 0x7F

    def copy(self, x):
        return x.copy()

    def f64(self, x):
        return x.astype(self.xp.float64)

    def to_numpy(self, x):
        return x

    def from_numpy(self, x):
        return x

    def round(self, x, dtype):
        return x.astype(self.xp.float32).astype(self.dtypes[dtype]).astype(self.xp.float64)

    def erf(self, x):
        return self.xp.vectorize(math.erf, otypes=[float])(x)

    def assign(self, dst, src):
        dst[...] = src.astype(dst.dtype)

    def fill(self, dst, values):
        dst[...] = self.xp.array(values).reshape(dst.shape)
