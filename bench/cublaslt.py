# SPDX-License-Identifier: Apache-2.0
"""The best that cuBLASLt has for a product: every algorithm its heuristic proposes is timed, the fastest is the baseline.

Through ctypes, from the public cublasLt.h: enum values and the one struct whose size matters are below."""

import ctypes
import functools
import statistics
import sys
from pathlib import Path

COMPUTE_32F, OP = 68, {False: 0, True: 1}  # cublasComputeType_t; cublasOperation_t: N, T
TYPES = {"f32": 0, "f16": 2, "bf16": 14}  # cudaDataType_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
EPILOGUE_BIAS = 4
LAYOUT_BATCH, LAYOUT_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
PREFER_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
WORKSPACE = 64 << 20
CANDIDATES = 32
GIVE_UP = 1.3  # a candidate that much slower than the best so far gets no second sample
SAMPLES = 3
NEAR, FINAL, FINAL_SAMPLES = 1.05, 4, 15  # so many that are that near the best are timed again


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


@functools.cache
def library():
    """The one torch has loaded, or one of its packages or of the toolkit."""
    names = ["libcublasLt.so.13", "libcublasLt.so.12"]
    folders = [*(f for p in sys.path for f in Path(p).glob("nvidia/*/lib")), Path("/usr/local/cuda/lib64")]
    for name in [*names, *(str(folder / name) for folder in folders for name in names)]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("no cuBLASLt library is found")


def call(name, *args):
    status = getattr(library(), name)(*args)
    if status:
        raise RuntimeError(f"{name} failed with status {status}")


@functools.cache
def handle():
    h = ctypes.c_void_p()
    call("cublasLtCreate", ctypes.byref(h))
    return h


def _create(name, *args):
    p = ctypes.c_void_p()
    call(name, ctypes.byref(p), *args)
    return p


def _set(name, of, attribute, value):
    call(name, of, attribute, ctypes.byref(value), ctypes.sizeof(value))


def _layout(dtype, rows, columns, ld, batch, stride):
    p = _create(
        "cublasLtMatrixLayoutCreate", TYPES[dtype], ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(ld)
    )
    if batch > 1:
        _set("cublasLtMatrixLayoutSetAttribute", p, LAYOUT_BATCH, ctypes.c_int32(batch))
        _set("cublasLtMatrixLayoutSetAttribute", p, LAYOUT_STRIDE, ctypes.c_int64(stride))
    return p


class Product:
    """d = alpha * a b + beta * c (+ bias) of one case, rows of d contiguous. cuBLASLt counts by columns, so it is asked
    for d^T = b^T a^T. Layouts and description live as long as the process: a few hundred small objects."""

    def __init__(self, case, torch):
        self.torch, sizes, t = torch, case.sizes, {x.name: x for x in case.op.tensors}
        m, n, k, batch = sizes["m"], sizes["n"], sizes["k"], sizes.get("batch", 1)
        attrs = case.all_attrs
        self.out = "y" if case.op.name == "gemm_epilogue" else "d"
        self.plus = "c" if self.out == "d" else "residual"
        has_plus = attrs.get("beta", 0) != 0 if self.out == "d" else "residual" in case.give
        self.alpha = ctypes.c_float(attrs.get("alpha", 1.0))
        self.beta = ctypes.c_float(attrs.get("beta", 1.0) if has_plus else 0.0)
        a_columns, b_columns = case.by_columns(t["a"]), case.by_columns(t["b"])
        kind, out = case.tensor_dtype(t["a"]), case.tensor_dtype(t[self.out])
        self.desc = _create("cublasLtMatmulDescCreate", COMPUTE_32F, TYPES["f32"])
        _set("cublasLtMatmulDescSetAttribute", self.desc, DESC_TRANSA, ctypes.c_int32(OP[b_columns]))
        _set("cublasLtMatmulDescSetAttribute", self.desc, DESC_TRANSB, ctypes.c_int32(OP[a_columns]))
        self.bias = "bias" in case.give
        if self.bias:
            _set("cublasLtMatmulDescSetAttribute", self.desc, DESC_EPILOGUE, ctypes.c_int32(EPILOGUE_BIAS))
        self.b = _layout(kind, *((k, n, k) if b_columns else (n, k, n)), batch, k * n)
        self.a = _layout(kind, *((m, k, m) if a_columns else (k, m, k)), batch, m * k)
        self.d = _layout(out, n, m, n, batch, m * n)
        self.space = workspace(torch)

    @staticmethod
    def fits(case):
        """Whether one call of cuBLASLt is the op."""
        a = case.all_attrs
        plain = a.get("act", "none") == "none" and not a.get("gated") and a.get("out_scale", 1.0) == 1.0
        return case.op.name in ("gemm", "gemm_batched", "gemm_epilogue") and plain

    def point_to_bias(self, args):
        """The description holds its address, which is read when a call is made."""
        if self.bias:
            pointer = ctypes.c_void_p(args["bias"].data_ptr())
            _set("cublasLtMatmulDescSetAttribute", self.desc, DESC_BIAS, pointer)

    def algorithms(self):
        preference = _create("cublasLtMatmulPreferenceCreate")
        _set("cublasLtMatmulPreferenceSetAttribute", preference, PREFER_WORKSPACE, ctypes.c_size_t(WORKSPACE))
        results, count = (Heuristic * CANDIDATES)(), ctypes.c_int(0)
        call("cublasLtMatmulAlgoGetHeuristic", handle(), self.desc, self.b, self.a, self.d, self.d, preference, CANDIDATES,
             results, ctypes.byref(count))  # fmt: skip
        return [r for r in results[: count.value] if r.state == 0]

    def build(self, algorithm, args):
        """A callable without arguments: the product of `args` by this algorithm, on torch's current stream."""
        matmul, torch = library().cublasLtMatmul, self.torch
        pointers = {n: ctypes.c_void_p(args[n].data_ptr()) for n in ("a", "b", self.out)}
        c = args.get(self.plus)
        c = pointers[self.out] if c is None or self.beta.value == 0 else ctypes.c_void_p(c.data_ptr())
        space, bytes_ = ctypes.c_void_p(self.space.data_ptr()), ctypes.c_size_t(WORKSPACE)
        result = {self.out: args[self.out]}

        def product():
            self.point_to_bias(args)
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            status = matmul(handle(), self.desc, ctypes.byref(self.alpha), pointers["b"], self.b, pointers["a"], self.a,
                            ctypes.byref(self.beta), c, self.d, pointers[self.out], self.d, ctypes.byref(algorithm.algo),
                            space, bytes_, stream)  # fmt: skip
            if status:
                raise RuntimeError(f"cublasLtMatmul failed with status {status}")
            return result

        return product


@functools.cache
def workspace(torch):
    return torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")


def best(case, device, sets, log):
    """Calls of the fastest algorithm, one for each set of arguments."""
    product = Product(case, device.torch)
    product.point_to_bias(sets[0])
    algorithms, timed, least = product.algorithms(), [], float("inf")
    for algorithm in algorithms:
        calls = [product.build(algorithm, args) for args in sets]
        try:
            us = min(_times(device, calls, SAMPLES, case, GIVE_UP * least))
        except RuntimeError:
            continue  # proposed, and still refused
        timed.append((us, calls))
        least = min(least, us)
    if not timed:
        raise RuntimeError("no algorithm of cuBLASLt takes the case")
    timed.sort(key=lambda t: t[0])
    near = [calls for us, calls in timed[:FINAL] if us <= NEAR * least]
    found = near[0]
    if len(near) > 1:  # a few samples do not tell them apart
        least, found = min(
            ((statistics.median(_times(device, c, FINAL_SAMPLES, case)), c) for c in near), key=lambda t: t[0]
        )
    log(f"    cublaslt: {len(algorithms)} algorithms, the best takes {least:.1f} us")
    return found


def _times(device, calls, samples, case, give_up=float("inf")):
    """Microseconds a call, of several replays; after a first one above give_up, no more."""
    count = max(len(calls), min(8, round(200 / device.guess_us(case))))
    times = []
    for _ in device.timed_replays(calls, count, samples, times):
        if times[0] > give_up:
            break
    return times
