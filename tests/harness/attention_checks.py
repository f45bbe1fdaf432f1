# SPDX-License-Identifier: Apache-2.0
"""Attention beside the same math as plain ops in the same dtype, in NumPy and in PyTorch, and bit for bit beside itself."""

import contextlib
from types import SimpleNamespace

import einkorn
import numpy as np
import pytest

from . import rows
from .attention import gather, mask_of, seen_places, sequence
from .dtypes import decode, round_to
from .run import AUTO, Prepared, Refused
from .tolerance import LEAST, UNIT

# Every mask and score by itself, then several together: attributes and optional tensors.
MASKED = [
    ({}, ()), ({"causal": True}, ()), ({"window_left": 60, "window_right": 20}, ()), ({"causal": True, "window_left": 50}, ()),
    ({"causal": True}, ("prefix_len",)), ({"softcap": 4.0}, ()), ({"causal": True}, ("sinks",)),
    ({"causal": True}, ("alibi",)), ({"causal": True, "scale": 0.25}, ("sinks", "alibi")),
    ({"causal": True, "window_left": 90, "softcap": 8.0}, ("prefix_len", "sinks", "alibi")),
]  # fmt: skip
# Heads for which kernels have tiles, or code, of their own. The first is for all rows; 512 is beyond those of prefill for Hopper.
TILES = [(64, 64), (128, 128), (192, 128), (256, 256), (512, 512)]
RUNS = {"ci": 100, "full": 100}  # of one call; on the CPU 10


# ---- the error of plain ops -----------------------------------------------------------------------------------------------


def plain_product(x, y):
    """x @ y in float32, one sum after the other: a BLAS would cut the sums into blocks, each CPU's its own way."""
    x, y = x.astype(np.float32), y.astype(np.float32)
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for i in range(x.shape[1]):
        total += x[:, i, None] * y[i]
    return total


def distances(n, kv):
    """[n, kv]: of every query from every key, for ALiBi."""
    return np.abs(np.arange(n)[:, None] + kv - n - np.arange(kv)[None, :])


def each_sequence(t, a, dtype, attend):
    """y out of attend(b, q, k, v, sees) of every sequence in which something is seen: [n, heads, head_dim], [kv, kv_heads,
    ...] as dtype has them, [n, kv] -> [n, heads, v_dim]."""
    q = t["q"].reshape(-1, a.heads, a.head_dim)
    y = np.zeros((q.shape[0], a.heads, a.v_dim))
    for b in range(a.batch):
        first, n, kv = sequence(t, a, b)
        sees = mask_of(t, a, b, n, kv)
        if sees.any():
            k, v = (round_to(gather(t, name, seen_places(t, a, b, sees)), dtype) for name in ("k", "v"))
            y[first : first + n] = np.where(sees.any(1)[:, None, None], attend(q[first : first + n], k, v, sees), 0)
    return y.reshape(*t["q"].shape[:-1], a.v_dim)


def by_parts(t, a, dtype):
    """A chain of plain ops in this dtype, every result rounded to it: product, scale, softcap, ALiBi, softmax, product."""

    def rounded(x):
        return round_to(x, dtype).astype(np.float32)

    def attend_head(q, k, v, sees, slope, sink):
        s = rounded(rounded(plain_product(q, k.T)) * np.float32(a.scale or 1 / np.sqrt(a.head_dim)))
        if a.softcap:
            s = rounded(a.softcap * rounded(np.tanh(rounded(s / np.float32(a.softcap)))))
        if slope is not None:
            s = rounded(s - rounded(slope * distances(*sees.shape)))
        s = np.where(sees, s, np.float32(-np.inf))
        if sink is not None:  # one more score, without a value
            s = np.concatenate([s, np.full((len(s), 1), rounded(sink), np.float32)], 1)
        most = s.max(1, keepdims=True)
        p = np.exp(s - np.where(np.isfinite(most), most, np.float32(0)))
        p = rounded(p / np.maximum(p.sum(1, keepdims=True), np.float32(LEAST)))
        return rounded(plain_product(p[:, : len(k)], v))

    def attend(q, k, v, sees):
        group = a.heads // a.kv_heads
        of = [t[n] for n in ("alibi", "sinks")]
        return np.stack(
            [
                attend_head(q[:, h], k[:, h // group], v[:, h // group], sees, *(x if x is None else x[h] for x in of))
                for h in range(a.heads)
            ],
            1,
        )

    return each_sequence(t, a, dtype, attend)


@contextlib.contextmanager
def math_backend(torch):
    """scaled_dot_product_attention as plain ops, in the dtype of its inputs: left alone it would go over to f32."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield torch.nn.functional.scaled_dot_product_attention
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def by_torch(torch, device):
    """The same by PyTorch: scaled_dot_product_attention with the masks and ALiBi as what it adds to the scores; softcap and
    sinks, which it does not have, as plain ops."""

    def chain(t, a, dtype):
        kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        scale = float(a.scale or 1 / np.sqrt(a.head_dim))

        def tensor(x):
            return torch.from_numpy(np.ascontiguousarray(x)).to(device).to(kind)

        def attend(q, k, v, sees):
            q, k, v = (tensor(x.swapaxes(0, 1)) for x in (q, k, v))  # heads first
            k, v = (x.repeat_interleave(a.heads // a.kv_heads, 0) for x in (k, v))
            bias = torch.zeros((a.heads, *sees.shape), dtype=kind, device=device)
            if t["alibi"] is not None:
                bias = bias - tensor(t["alibi"])[:, None, None] * tensor(distances(*sees.shape))
            bias = bias.masked_fill(torch.from_numpy(~sees).to(device), -torch.inf)
            if not a.softcap and t["sinks"] is None:
                with math_backend(torch) as attention:
                    y = attention(q[None], k[None], v[None], attn_mask=bias[None], scale=scale)[0]
            else:
                s = q @ k.mT * scale
                s = (a.softcap * torch.tanh(s / a.softcap) if a.softcap else s) + bias
                if t["sinks"] is not None:
                    sinks = tensor(t["sinks"])[:, None, None].expand(-1, s.shape[1], 1)
                    s = torch.cat([s, sinks], -1)
                y = torch.softmax(s, -1)[..., : k.shape[1]] @ v
            return y.to(torch.float64).cpu().numpy().swapaxes(0, 1)

        return each_sequence(t, a, dtype, attend)

    return chain


def masks(spec, level):
    """(dtypes, i, attributes, optional tensors) of cases: every kind of mask and score, in every dtype."""
    for dtypes in spec.combos():
        for i, (attrs, extras) in enumerate(MASKED[:4] if level == "smoke" else MASKED):
            yield dtypes, i, attrs, extras


def check_beside_torch(spec, device, level, cases):
    if level == "smoke":
        pytest.skip("other libraries' kernels are not for the sanitizers")
    check_beside(spec, device, cases, by_torch(pytest.importorskip("torch"), device))


def check_beside(spec, device, cases, chain=by_parts):
    """check_case_beside for all cases, in which every row takes every mask in some dtypes: else it would go unseen."""
    asked, took = {}, {}  # what a mask is -> a case of it; -> rows
    for case in cases:
        mask = (case.attrs, *(n for n in ("prefix_len", "sinks", "alibi") if n in case.present))
        asked.setdefault(mask, case)
        took.setdefault(mask, set()).update(check_case_beside(spec, device, case, chain))
    names = [k.name for k in rows.usable(spec.op, device) if not rows.lacks_library(k.name)]
    missed = [f"{row}: {case}" for mask, case in asked.items() for row in names if row not in took[mask]]
    assert not missed, "rows that refused all cases of a mask, such as\n" + "\n".join(missed)


def check_case_beside(spec, device, case, chain):
    """At most twice as far from float64, at the worst and on average, as a chain of plain ops in the same dtype. Returns the
    rows that took the case."""
    prepared, dtype = Prepared(spec, case), dict(case.dtypes)["T"]
    t = dict.fromkeys(x.name for x in spec.schema.tensors)
    t |= {n: decode(raw, prepared.dtypes[n]) for n, raw in prepared.inputs.items()}
    want = prepared.expected()["y"].value
    plain = np.abs(chain(t, SimpleNamespace(**prepared.values), dtype) - want)
    assert np.isfinite(plain).all(), f"the chain has no result, {case}"
    took = set()
    for row in [k.name for k in rows.usable(spec.op, device)]:
        try:
            raw, _ = prepared.results(prepared.run(device, row))["y"]
        except Refused:
            continue
        took.add(row)
        error, rounding = np.abs(decode(raw, dtype) - want), UNIT[dtype] * np.abs(want)
        assert error.max() <= 2 * plain.max() + rounding.max(), f"{row}: {error.max()} {plain.max()} {case}"
        assert error.mean() <= 2 * plain.mean() + rounding.mean(), f"{row}: {error.mean()} {plain.mean()} {case}"
    return took


def name_of(dtypes):
    """A test id."""
    return "-".join(dtype for _, dtype in dtypes)


# ---- bits -----------------------------------------------------------------------------------------------------------------


def check_same_bits(spec, device, level, cases):
    """The cases, run again and again on every row that promises the same bits each time. The rows of the CPU, which have the
    same code for all of them, get some."""
    context = einkorn.Context(device, flags=("deterministic",))
    promised = [*(k.name for k in rows.usable(spec.op, device) if k.deterministic), AUTO]
    for case in cases if device != "cpu" else cases[::4]:
        prepared = Prepared(spec, case)
        for row in promised:
            try:
                first = prepared.run(device, row, context)
            except Refused:
                continue
            prepared.check(first)
            for _ in range((RUNS[level] if device != "cpu" else 10) - 1):
                assert np.array_equal(prepared.run(device, row, context), first), f"{row}: another result, {case}"
