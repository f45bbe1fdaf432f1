# SPDX-License-Identifier: Apache-2.0
"""Functions that several float64 references share, written from their definitions."""

import math

import numpy as np

from .dtypes import round_to
from .tolerance import LEAST

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def far_from_zero(rng, t, a):
    """Every other row of x: squares of such a mean leave few digits for the deviations."""
    rows = t["x"].shape[:-1]
    t["x"] = t["x"] + 12.0 * (np.arange(math.prod(rows)) % 2).reshape(*rows, 1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def silu_size(x, factor=1.0):
    """Magnitude and floor of silu(x) * factor: exp turns an error of x into one of |x|, and sigmoid underflows."""
    return {"magnitude": np.abs(silu(x) * factor) * (1 + np.abs(x)), "floor": np.abs(x * factor) * LEAST}


def silu_slope_size(x, factor):
    """The same for silu_slope(x) * factor."""
    s = sigmoid(x)
    terms = s * (1 + np.abs(x) * (1 - s)) * (1 + np.abs(x))
    return {"magnitude": np.abs(factor) * terms, "floor": np.abs(factor) * (1 + np.abs(x)) * LEAST}


def silu_slope(x):
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


def _tanh_argument(x):
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def gelu(x, form):
    if form == "erf":
        return x * 0.5 * _erfc(-x / math.sqrt(2))
    return 0.5 * x * (1 + np.tanh(_tanh_argument(x)))


def gelu_slope(x, form):
    if form == "erf":
        return 0.5 * _erfc(-x / math.sqrt(2)) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    t = np.tanh(_tanh_argument(x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def gelu_slope_magnitude(x):
    """The terms that gelu_slope adds up. 1 - t * t is a difference of numbers near 1, hence the bare polynomial."""
    return 1 + np.abs(x) * np.minimum(1 + 0.134 * x * x, 40)


# ---- gates --------------------------------------------------------------------------------------------------------------

LAYOUTS = ({"layout": "halves"}, {"layout": "interleaved"}, {"layout": "separate"})


def gate_dims(n, a, i):
    """x of a gated op for n outputs a row."""
    return {"width": n if a.layout == "separate" else 2 * n}


def split_gate(t, a):
    """gate and up out of x, in whichever layout."""
    if a.layout == "separate":
        return t.x, t.up
    if a.layout == "interleaved":
        return t.x[..., 0::2], t.x[..., 1::2]
    half = t.x.shape[-1] // 2
    return t.x[..., :half], t.x[..., half:]


def join_gate(gate, up, a):
    """The inverse, for gradients; in layout separate the gate alone."""
    if a.layout == "separate":
        return gate
    if a.layout == "halves":
        return np.concatenate([gate, up], -1)
    return np.stack([gate, up], -1).reshape(*gate.shape[:-1], 2 * gate.shape[-1])


def weight_of(t, a):
    """weight + weight_offset; no weight is a factor of 1, whatever the offset."""
    return 1.0 if t.weight is None else t.weight + getattr(a, "weight_offset", 0.0)


def add_residual(t, a):
    """x + residual in f32, rounded to T: what add_* ops store and go on with."""
    return round_to(t.x.astype(np.float32) + t.residual.astype(np.float32), a.T)
