# SPDX-License-Identifier: Apache-2.0
"""How far a result may be from its float64 reference: the one formula of the suite. docs/numerics.md derives it.

    |out - ref| <= u * |ref|  +  (k * 2^-24 + math) * magnitude  +  tiny  +  k * 2^-146  +  floor
                                                                                            k = steps + 2 * log2(n)

u, tiny: half a unit in the last place of the output's dtype, and half its least denormal: its one rounding. magnitude:
the sum of the absolute values of the terms that make up the result, through which f32 errors enter. n: length of the
longest f32 sum; steps: f32 roundings outside of it. 2^-146: the same roundings where f32 is denormal. floor: for
formulas with an intermediate that may leave f32's normal range, what that range ends at, LEAST, times the factors that
follow; where it is only rounded, but they are large, DENORMAL times those factors. math: 2^-15 for 16-bit results of
exp, tanh or erf, which CUDA rows take from lean approximations of that accuracy (src/cuda/math.cuh), a sixteenth of
f16's own rounding; else 0. A quantised output has, in place of u * |ref|, half a step of its format.

A matrix product adds up k terms in a chain, not in a tree, and tensor cores cut off where others round: see
product_error(). Its result has that error, carried through what follows, in place of the term with `magnitude`."""

import numpy as np

from .dtypes import decode, round_to

UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}
F32 = 2.0**-24
LEAST = 2.0**-126  # f32's least normal number
FAST_MATH = 2.0**-15
FAST_SIGMOID = 2.0**-17  # of the same backend, where a result is a sigmoid's alone
DENORMAL = 2.0**-146  # eight of f32's least steps, 2^-149: a later factor can magnify what was lost


TF32 = 2.0**-11  # f32 to 11 bits, to nearest


def product_error(terms, k):
    """The f32 error of a sum of k products. terms: the sum of the absolute values of all that is added up, which no
    partial sum can exceed. Tensor cores take 16 products a step and cut off what does not fit beside the sum so far: at
    most two units of 2^-24 a step, of the same sign each time, so k / 16 steps add up. A chain of FMAs rounds k times to
    nearest, which adds up to sqrt(k) units and stays below that. 8: alpha, beta, bias, and the sum's own ends. Where
    terms are below f32's least normal number a product may be lost."""
    return (8 + k / 8) * (F32 * terms + DENORMAL)


def tf32_error(products):
    """What TF32 adds to that: both factors of each product rounded to 11 bits. products: the sum of their absolute values."""
    return (2 * TF32 + TF32**2) * products


class Expected:
    """What an output must be. exact: bit for bit the rounded value (NaN stays NaN). error: how far the value before its
    last rounding may be off, in place of what magnitude, n and steps say. tf32: the same where TF32 is allowed."""

    def __init__(self, value, magnitude=None, n=1, steps=8, floor=0.0, exact=False, math=False, error=None, tf32=None):
        self.error, self.tf32 = error, tf32
        self.value = np.asarray(value, np.float64)
        with np.errstate(invalid="ignore"):
            self.magnitude = np.abs(self.value) if magnitude is None else np.asarray(magnitude, np.float64)
        self.k = steps + 2 * np.log2(max(n, 1))
        self.floor, self.exact, self.math = floor, exact, math
        self._want = None  # value and bound for the dtype, kept because every row of the op is checked by them

    def with_tf32(self):
        """The same for a row that computes with TF32."""
        return self if self.tf32 is None else Expected(self.value, error=self.tf32)

    def want(self, shape, dtype):
        """The value, and how far a result of this dtype may be from it."""
        if self._want is None:
            value = np.broadcast_to(self.value, shape)
            if self.exact:
                value, bound = round_to(value, dtype), np.zeros(shape)
            elif self.error is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    bound = UNIT[dtype] * (np.abs(value) + self.error) + self.error + TINY[dtype]
                # An infinity or a NaN has no neighbours.
                bound = np.where(np.isfinite(value), bound, 0.0)
            else:
                with np.errstate(invalid="ignore", over="ignore"):
                    bound = UNIT[dtype] * np.abs(value) + self.k * (F32 * self.magnitude + DENORMAL)
                    if self.math and dtype != "f32":
                        bound = bound + FAST_MATH * self.magnitude
                    bound = bound + TINY[dtype] + self.floor
            self._want = value, np.broadcast_to(bound, shape)
        return self._want

    def check(self, name, got):
        raw, dtype = got[name]
        out = decode(raw, dtype)
        want, bound = self.want(raw.shape, dtype)
        with np.errstate(invalid="ignore"):
            if (np.abs(out - want) <= bound).all():
                return
        # Beyond the largest finite value a result rounds to infinity; at the edge either is right.
        with np.errstate(invalid="ignore"):
            inner = np.sign(want) * np.minimum(bound, np.abs(want))
            low, high = round_to(want - inner, dtype), round_to(want + np.sign(want) * bound, dtype)
        edge = np.isinf(out) & (out == high) & np.isfinite(want)
        _report(name, out, np.where(edge, out, np.where(np.isinf(low), low, want)), bound)


class Quantized:
    """Values in groups of `group` (0: the row) as q * scale. Checks y by the scale that came with it, and the scale."""

    def __init__(self, value, group, q, magnitude=None, n=1, steps=10, math=False):
        self.value, self.q = value, q
        self.group, self.whole = group or max(value.shape[-1], 1), group == 0
        self.magnitude = np.abs(value) if magnitude is None else magnitude
        self.k = steps + 2 * np.log2(max(n, 1)) + (FAST_SIGMOID / F32 if math else 0)
        self.qmax = 448.0 if q == "e4m3" else 127.0

    def _per_group(self, values):
        """[..., dim] -> largest of each group [..., groups]; NaN wins. A row of nothing has a scale too: that of zeros."""
        dim = values.shape[-1]
        if dim == 0:
            return np.zeros((*values.shape[:-1], int(self.whole)))
        return np.stack([values[..., s : s + self.group].max(-1) for s in range(0, dim, self.group)], -1)

    def _spread(self, scale):
        return np.repeat(scale, self.group, -1)[..., : self.value.shape[-1]]

    def scale(self):
        most = self._per_group(np.abs(self.value))
        magnitude = self._per_group(np.abs(self.magnitude)) / self.qmax
        return Expected(np.maximum(most, 1e-20) / self.qmax, magnitude, steps=self.k)

    def check(self, name, got):
        raw, dtype = got[name]
        q = decode(raw, dtype)
        scale = self._spread(decode(*got["scale"]))
        with np.errstate(all="ignore"):
            exact = self.value / scale
            if dtype == "i8":
                half = np.full(q.shape, 0.5)
            else:  # e4m3 has 8 steps to a binade, and steps of 2^-9 below 2^-6
                half = np.exp2(np.maximum(np.floor(np.log2(np.abs(exact) * (1 + 2.0**-20))), -6) - 4)
            bound = scale * half + self.k * F32 * np.maximum(self.magnitude, np.abs(self.value))
            # A scale that is not finite leaves 0 for the finite values, and NaN (0 in i8) for the others.
            lost = ~np.isfinite(scale)
            want = np.where(lost, np.where(np.isfinite(exact), 0, np.nan if dtype == "e4m3" else 0), self.value)
            out = np.where(lost, q, q * scale)
        _report(name, out, want, np.where(lost, 0, bound))


def _report(name, out, want, bound):
    with np.errstate(invalid="ignore"):
        same = (out == want) | (np.isnan(out) & np.isnan(want))
        good = same | (np.abs(out - want) <= bound)
    if good.all():
        return
    with np.errstate(all="ignore"):
        excess = np.where(good, 0, np.nan_to_num(np.abs(out - want) / bound, nan=np.inf, posinf=np.inf))
    worst = np.unravel_index(np.argmax(excess), out.shape)
    raise AssertionError(
        f"{name}: {int((~good).sum())} of {out.size} elements are wrong; at {list(map(int, worst))} it is"
        f" {out[worst]!r}, expected {want[worst]!r} +- {bound[worst]:.3g}"
    )
