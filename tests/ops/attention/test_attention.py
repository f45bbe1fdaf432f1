# SPDX-License-Identifier: Apache-2.0
import einkorn
import numpy as np
from harness import Prepared, Refused, rows
from harness.attention import AttentionSpec, gather, mask_of, place, sequence
from harness.dtypes import decode, round_to
from harness.tolerance import UNIT

SHARDS = 8  # processes of tools/gpu-check


# Each mode: the shape of "..." of q, the dims of its own, and the tensors that come with it, for `batch` sequences of
# q_len queries and at most kv_len keys.
def dense(q_len, kv_len, batch, page_size):
    return (batch, q_len), {"pages": batch, "page_size": kv_len}, ()


def dense_lengths(q_len, kv_len, batch, page_size):
    return (batch, q_len), {"pages": batch, "page_size": kv_len, "seqs": batch}, ("kv_len",)


def packed(q_len, kv_len, batch, page_size):
    return (batch * q_len,), {"pages": 1, "page_size": batch * kv_len, "cu_len": batch + 1}, ("cu_q", "cu_kv")


def packed_keys(q_len, kv_len, batch, page_size):
    return (batch * q_len,), {"pages": 1, "page_size": batch * kv_len, "cu_len": batch + 1}, ("cu_kv",)


def packed_queries(q_len, kv_len, batch, page_size):
    own = {"pages": batch, "page_size": kv_len, "cu_len": batch + 1, "seqs": batch}
    return (batch * q_len,), own, ("cu_q", "kv_len")


def paged_dense_q(q_len, kv_len, batch, page_size):
    return (batch, q_len), paged(q_len, kv_len, batch, page_size)[1] | {"cu_len": 0}, ("page_table", "kv_len")


def paged(q_len, kv_len, batch, page_size):
    most = -(-kv_len // page_size)
    own = {"pages": max(batch * most, 1), "page_size": page_size, "seqs": batch, "max_pages": most, "cu_len": batch + 1}
    return (batch * q_len,), own, ("cu_q", "page_table", "kv_len")


def generic(n, attrs, lead):
    """One sequence: a token more or less changes nothing for the others."""
    dims = {"heads": 4, "head_dim": 64, "kv_heads": 2, "v_dim": 64, "pages": 1, "page_size": n}
    if "window_left" in attrs:
        paged_dims = {"pages": 3, "page_size": 4, "max_pages": 3, "seqs": 1, "cu_len": 2}
        return dims | paged_dims, ("cu_q", "page_table", "kv_len", "prefix_len", "sinks", "alibi", "lse")
    if attrs.get("causal"):
        return dims | {"cu_len": 2}, ("cu_q", "cu_kv", "alibi", "lse")
    return dims, ("sinks", "lse")


SPEC = AttentionSpec(
    "attention", modes=[dense, packed, dense_lengths, packed_queries, paged_dense_q, packed_keys, paged], generic=generic,
    queries=lambda n: n, large={"heads": 8, "page_size": 64, "head_dim": 128, "v_dim": 128},
)  # fmt: skip


def test_attention(plan):
    plan.check()


def test_sequences_alone(device, level):
    """A sequence has the same bits in any batch."""
    context = einkorn.Context(device, flags=("batch_invariant",))
    for dtypes in SPEC.combos():

        def case_of(n, dtypes=dtypes):
            return SPEC.make(
                dtypes, 0, mode=dense_lengths, q_len=9, kv_len=90, batch=n, heads=(4, 2), dims=(128, 128),
                attrs={"causal": True, "window_left": 70}, extras=("prefix_len", "sinks", "lse"),
            )  # fmt: skip

        whole = Prepared(SPEC, case_of(128))
        for row in [k.name for k in rows.usable("attention", device) if k.batch_invariant]:
            try:
                want = whole.results(whole.run(device, row, context))
            except Refused:
                continue
            for n in (1, 2, 17, 127) if level != "full" else range(1, 128):
                inputs = {k: v if k == "sinks" else v[-n:] for k, v in whole.inputs.items()}
                part = Prepared(SPEC, case_of(n), inputs)
                for name, (values, _) in part.results(part.run(device, row, context)).items():
                    same = values.tobytes() == np.ascontiguousarray(want[name][0][-n:]).tobytes()
                    assert same, f"{row}: {name} differs in a batch of {n} from one of 128"


def product(x, y):
    """x @ y in float32, one sum after the other: a BLAS would cut the sums into blocks, each CPU's its own way."""
    x, y = x.astype(np.float32), y.astype(np.float32)
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for i in range(x.shape[1]):
        total += x[:, i, None] * y[i]
    return total


def by_parts(t, a, dtype):
    """The same as a chain of plain ops in this dtype, every result rounded to it: products, scale, softmax, product."""
    y = np.zeros((t["q"].shape[0] * a.q_len, a.heads, a.v_dim))
    q = t["q"].reshape(-1, a.heads, a.head_dim)
    for b in range(a.batch):
        first, n, kv = sequence(t, a, b)
        k, v = (gather(t, name, np.array([place(t, a, b, j) for j in range(kv)])) for name in ("k", "v"))
        for h in range(a.heads):
            of = h // (a.heads // a.kv_heads)
            s = round_to(product(q[first : first + n, h], k[:, of].T), dtype)
            s = round_to((s / np.sqrt(a.head_dim)).astype(np.float32), dtype)
            s = np.where(mask_of(t, a, b, n, kv), s, -np.inf).astype(np.float32)
            p = np.exp(s - s.max(1, keepdims=True))
            p = round_to(p / p.sum(1, keepdims=True), dtype)
            y[first : first + n, h] = round_to(product(p, v[:, of]), dtype)
    return y.reshape(*t["q"].shape[:-1], a.v_dim)


def test_error_of_a_chain_of_ops(device):
    """At most twice as far from float64, at the worst and on average, as a chain of plain ops in the same dtype."""
    for dtypes in SPEC.combos():
        dtype = dtypes[0][1]
        for i, dims in enumerate([(64, 64), (128, 128), (192, 128), (256, 256)]):
            case = SPEC.make(dtypes, 0, mode=dense, q_len=70, kv_len=333, heads=(4, 2), dims=dims, batch=2, extras=(),
                             attrs=[{}, {"causal": True}][i % 2], seed=8 + 2 * i)  # fmt: skip
            prepared = Prepared(SPEC, case)
            t = dict.fromkeys(x.name for x in SPEC.schema.tensors) | {
                n: decode(raw, prepared.dtypes[n]) for n, raw in prepared.inputs.items()
            }
            want = prepared.expected()["y"].value
            chain = np.abs(by_parts(t, _Values(prepared.values), dtype) - want)
            for row in [k.name for k in rows.usable("attention", device)]:
                try:
                    raw, _ = prepared.results(prepared.run(device, row))["y"]
                except Refused:
                    continue
                error, rounding = np.abs(decode(raw, dtype) - want), UNIT[dtype] * np.abs(want)
                assert error.max() <= 2 * chain.max() + rounding.max(), f"{row}: {error.max()} {chain.max()} {case}"
                assert error.mean() <= 2 * chain.mean() + rounding.mean(), (
                    f"{row}: {error.mean()} {chain.mean()} {case}"
                )


class _Values:
    def __init__(self, values):
        self.__dict__.update(values)
