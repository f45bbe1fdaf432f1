# SPDX-License-Identifier: Apache-2.0
"""Every dtype as NumPy can hold it, and its exact value in float64. No ml_dtypes: the tests need only NumPy."""

import numpy as np

# What an element is stored as; bf16 and e4m3 as their bits.
STORAGE = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "e4m3": np.uint8, "i8": np.int8,
    "u8": np.uint8, "i32": np.int32, "i64": np.int64, "bool": np.bool_,
}  # fmt: skip
ITEMSIZE = {name: np.dtype(kind).itemsize for name, kind in STORAGE.items()}


def _e4m3_values():
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[(bits & 0x7F) == 0x7F] = np.nan
    return np.where(bits & 0x80, -value, value)


_E4M3 = _e4m3_values()


def decode(raw, dtype):
    """Stored elements -> float64, exactly."""
    if dtype == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "e4m3":
        return _E4M3[raw]
    return raw.astype(np.float64)


def encode(values, dtype):
    """Numbers -> stored elements, rounded to nearest even."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "e4m3":
            return _encode_e4m3(np.asarray(values, np.float64))
        if dtype != "bf16":
            return np.asarray(values).astype(STORAGE[dtype])
        bits = np.asarray(values, np.float32).view(np.uint32)
        rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
        return np.where(np.isnan(np.asarray(values)), 0x7FC0, rounded).astype(np.uint16)


def _encode_e4m3(values):
    """Saturated at 448; NaN is 0x7f. The bits of magnitudes are in their order, so an odd one loses a tie."""
    size = np.minimum(np.abs(values), 448.0)
    above = np.searchsorted(_E4M3[:0x7F], np.nan_to_num(size))
    below = np.maximum(above - 1, 0)
    gap = (_E4M3[above] - size) - (size - _E4M3[below])
    bits = np.where((gap > 0) | ((gap == 0) & (below % 2 == 0)), below, above)
    return np.where(np.isnan(values), 0x7F, bits | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def round_to(values, dtype):
    """The nearest value that dtype has, as float64."""
    return decode(encode(values, dtype), dtype)
