# SPDX-License-Identifier: Apache-2.0
from harness.attention import AttentionSpec


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
