# SPDX-License-Identifier: Apache-2.0
"""Dtype names and outputs: what the generated functions need around the native call. NumPy and torch are imported only
when a tensor of theirs comes in."""

import sys

from ._schema_gen import DTYPES

# The name others give a dtype -> ours.
_OTHER_NAMES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "int32": "i32", "int64": "i64", "float64": "f64", "float32": "f32",
    "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e8m0fnu": "e8m0",
    "float4_e2m1fn_x2": "e2m1",
}  # fmt: skip
_OURS = {ours: other for other, ours in _OTHER_NAMES.items()}


def dtype_name(dtype):
    """'bf16' for 'bf16', torch.bfloat16, ml_dtypes.bfloat16, np.dtype('bfloat16')."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in _OTHER_NAMES:
        raise ValueError(f"{dtype!r} is not a dtype of einkorn, expected one of {', '.join(DTYPES)}")
    return _OTHER_NAMES[name]


def dtype_name_or_none(dtype):
    return None if dtype is None else dtype_name(dtype)


def dtype_code(dtype):
    """EK_DTYPE_*: DLPack's code, bits and one lane in one integer."""
    code, bits = DTYPES[dtype_name(dtype)]
    return code | bits << 8 | 1 << 16


def numpy_dtype(name):
    """The NumPy dtype of a name; bf16 and fp8 are those of ml_dtypes."""
    import numpy as np

    other = _OURS[name]
    if name in ("bf16", "e4m3", "e5m2", "e8m0"):
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(f"NumPy has no {name}: install ml_dtypes, or pass the output yourself") from None
        return np.dtype(getattr(ml_dtypes, other))
    return np.dtype(other)


def output_dtype(dtype, op, param, output):
    if dtype is None:
        raise TypeError(f"{op}: give {param}=, or {output}= to write into")
    return dtype_name(dtype)


def ceil_div(a, b):
    return -(-a // b)


def results(*tensors):
    """Outputs without the optional ones that are absent; a single one alone."""
    present = [t for t in tensors if t is not None]
    return present[0] if len(present) == 1 else tuple(present)


# ---- outputs like an input --------------------------------------------------------------------------------------------


def _new_numpy(like, shape, dtype):
    import numpy as np

    return np.empty(like.shape if shape is None else shape, like.dtype if dtype is None else numpy_dtype(dtype))


def _new_torch(like, shape, dtype):
    torch = sys.modules["torch"]
    if shape is None and dtype is None:
        return torch.empty_like(like)  # half the time of new_empty
    shape = like.shape if shape is None else shape
    return like.new_empty(shape, dtype=None if dtype is None else getattr(torch, _OURS[dtype]))


def _new_device(like, shape, dtype):
    return type(like).empty(like.shape if shape is None else shape, dtype or like.dtype, like.device)


# What looking at the shape of something raises that is no tensor, or one with too few dims.
Unfit = (AttributeError, IndexError, ZeroDivisionError)

_makers = {}  # type -> function


def _find_maker(kind):
    for base in kind.__mro__:
        if base.__module__ == "numpy" and base.__name__ == "ndarray":
            return _new_numpy
        if base.__module__ == "torch" and base.__name__ == "Tensor":
            return _new_torch
        if base.__module__ == "einkorn._memory" and base.__name__ == "DeviceArray":
            return _new_device
    if not hasattr(kind, "__dlpack__"):
        raise AttributeError("no tensor")
    raise TypeError(f"can't allocate an output like a {kind.__module__}.{kind.__qualname__}: pass the outputs yourself")


def new(like, shape, dtype):
    """An uninitialised tensor of like's kind on like's device; shape or dtype None: like's."""
    kind = type(like)
    maker = _makers.get(kind)
    if maker is None:
        maker = _makers[kind] = _find_maker(kind)
    try:
        return maker(like, shape, dtype)
    except TypeError as e:
        raise TypeError(f"can't allocate an output of shape {shape}: {e}") from None
