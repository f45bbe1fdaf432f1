# SPDX-License-Identifier: Apache-2.0
"""A tour of einkorn: ops on the CPU and, where there is one, on the GPU. Every element is checked against NumPy in
float64; each line says which kernel the library chose, how long it takes, and the bytes that it reads and writes in
that time. (Times for the record, with care taken about caches and clocks, are the business of bench/.)"""

import statistics
import sys
import time

import einkorn
import numpy as np

try:
    from ml_dtypes import bfloat16 as half
except ImportError:
    half = np.float16  # NumPy alone has no bf16

SECONDS = 0.1  # to time each op for


# ---- the ops in float64 ----------------------------------------------------------------------------------------------


def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def layer_norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * weight + bias


def silu(x):
    return x / (1 + np.exp(-x))


def swiglu(x):
    gate, up = np.split(x, 2, axis=-1)
    return silu(gate) * up


def attention(q, k, v):
    """Causal, over [batch, tokens, heads, dim], several heads of q to one of k and v; and the same with |v|, the size of
    what is added up."""
    group, tokens = q.shape[2] // k.shape[2], q.shape[1]
    k, v = (np.repeat(x, group, axis=2) for x in (k, v))
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    s = np.where(np.tri(tokens, dtype=bool), s, -np.inf)
    w = np.exp(s - s.max(axis=-1, keepdims=True))
    w /= w.sum(axis=-1, keepdims=True)
    return [np.einsum("bhqk,bkhd->bqhd", w, x) for x in (v, np.abs(v))]


# ---- one stop --------------------------------------------------------------------------------------------------------


class Place:
    """A device, and how to take arrays there, bring them back and wait for it."""

    def __init__(self, device):
        self.name, self.cuda = device.device, device.device != "cpu"
        self.context = einkorn.context(self.name)

    def put(self, array):
        return einkorn.from_numpy(array, self.name) if self.cuda else array.copy()

    def get(self, tensor):
        return tensor.numpy() if self.cuda else tensor

    def microseconds(self, call):
        """The median over single calls on the CPU; on a GPU over runs of 20, so that launching does not count."""
        times, calls, deadline = [], 20 if self.cuda else 1, time.perf_counter() + SECONDS
        while time.perf_counter() < deadline or len(times) < 3:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            self.context.synchronize()
            times.append((time.perf_counter() - start) / calls * 1e6)
        return statistics.median(times)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def visit(place, op, inputs, expected, rounding, outputs=("y",), mutates=None, size=0.0, **attributes):
    """Runs, checks and times one op and prints its line; True if the result is right. `rounding` is the largest error
    of one rounding to the output's dtype: relative, or in units of the scale where the op quantizes. `size` of what is
    rounded inside the op."""
    function = getattr(einkorn, op)
    tensors = [place.put(a) for a in inputs]
    results = as_tuple(function(*tensors, **attributes))
    kernel = einkorn.last_kernel()
    arrays = [np.asarray(place.get(r)) for r in results]
    got = arrays[0].astype(np.float64)
    if len(arrays) == 2:  # quantized: x = q * scale
        got *= arrays[1].astype(np.float64)
        rounding_of = np.broadcast_to(arrays[1] * rounding, got.shape)
    else:
        rounding_of = rounding * (np.abs(expected) + size)
    # On top of the rounding, what float32 sums over a row may lose.
    error = np.max(np.abs(got - expected) / (rounding_of + 1e-5 * (1 + np.abs(expected))))
    right = bool(error <= 1)

    given = dict(zip(outputs, results, strict=True))
    attributes.pop("dtype", None)
    us = place.microseconds(lambda: function(*tensors, **attributes, **given))
    nbytes = sum(a.nbytes for a in inputs) + sum(a.nbytes for a in arrays)
    nbytes += inputs[mutates].nbytes if mutates is not None else 0
    shape = "x".join(str(n) for n in inputs[0].shape)
    verdict = "ok" if right else f"WRONG: {error:.3g} times the tolerance"
    what = f"{place.name:7} {op:15} {inputs[0].dtype.name:9} {shape:>11}  {kernel:28}"
    print(f"{what} {us:9.1f} us {nbytes / us / 1e3:8.1f} GB/s  {verdict}", flush=True)
    return right


def tour(place, dtype, rows, dim):
    """All stops on one device in one dtype."""
    rng = np.random.default_rng(7)

    def make(*shape):
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)

    def f64(*arrays):
        return [a.astype(np.float64) for a in arrays]

    x, residual, weight, bias = make(rows, dim), make(rows, dim), make(dim), make(dim)
    half_ulp = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11}.get(dtype, 2.0**-8)
    summed = np.add(*f64(x, residual)).astype(dtype)  # the residual stream is kept in the tensor's dtype
    other = np.dtype(np.float32 if dtype != np.float32 else np.float16)
    to_other = 0.0 if other == np.float32 else 2.0**-11

    ok = visit(place, "rms_norm", [x, weight], rms_norm(*f64(x, weight)), half_ulp)
    ok &= visit(place, "add_rms_norm", [x, residual, weight], rms_norm(*f64(summed, weight)), half_ulp, mutates=1)
    expected = rms_norm(*f64(x, weight))
    ok &= visit(place, "rms_norm_quant", [x, weight], expected, 0.5, ("y", "scale"), dtype="i8")
    ok &= visit(place, "layer_norm", [x, weight, bias], layer_norm(*f64(x, weight, bias)), half_ulp)
    ok &= visit(place, "swiglu", [x], swiglu(*f64(x)), half_ulp)
    ok &= visit(place, "silu", [x], silu(*f64(x)), half_ulp)
    ok &= visit(place, "add", [x, residual], np.add(*f64(x, residual)), half_ulp)
    ok &= visit(place, "cast", [x], *f64(x), to_other, dtype=other.name)
    ok &= visit(place, "transpose_2d", [x], f64(x)[0].T, 0.0)
    a, b = make(rows, 512), (make(512, 1024) / np.float32(512**0.5)).astype(dtype)
    ok &= visit(place, "gemm", [a, b], np.matmul(*f64(a, b)), half_ulp, ("d",))
    q, k, v = make(2, rows // 8, 8, 64), make(2, rows // 8, 2, 64), make(2, rows // 8, 2, 64)
    expected, size = attention(*f64(q, k, v))
    ok &= visit(place, "attention", [q, k, v], expected, half_ulp, size=size, causal=True)
    return ok


def main():
    print(einkorn.build_info())
    places = einkorn.devices()
    for device in places:
        print(f"{device.device}: {device.name}, {device.processors} {'threads' if device.device == 'cpu' else 'SMs'}")
    if len(places) == 1:
        print("no CUDA device: the CPU alone")
    if half == np.float16:
        print("no ml_dtypes: float16 in place of bfloat16")
    print()

    ok = True
    for device in places:
        # Large enough on a GPU to go past its caches, small enough on a CPU to be quick.
        rows, dim = (1024, 4096) if device.device == "cpu" else (4096, 8192)
        for dtype in (np.dtype(np.float32), np.dtype(half)):
            ok &= tour(Place(device), dtype, rows, dim)
    print("\nall results are right" if ok else "\nsome results are wrong")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
