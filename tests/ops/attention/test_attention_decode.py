# SPDX-License-Identifier: Apache-2.0
import pytest
from harness.attention import AttentionSpec
from harness.attention_checks import MASKED, TILES, beside_torch, by_torch, check_beside

SHARDS = 6  # processes of tools/gpu-check


# Each mode: no leading dims, the dims of its own, and the tensors that come with it.
def dense(q_len, kv_len, batch, page_size):
    return (), {"batch": batch, "q_len": q_len, "pages": batch, "page_size": kv_len}, ()


def paged(q_len, kv_len, batch, page_size):
    most = -(-kv_len // page_size)
    own = {"pages": max(batch * most, 1), "page_size": page_size, "max_pages": most}
    return (), {"batch": batch, "q_len": q_len, **own}, ("page_table",)


def generic(n, attrs, lead):
    size = 16
    pages = -(-n // size)
    dims = {"batch": lead[0], "q_len": 2, "heads": 4, "head_dim": 64, "pages": max(2 * pages, 2), "page_size": size,
            "kv_heads": 2, "v_dim": 64, "max_pages": pages}  # fmt: skip
    options = ("prefix_len", "alibi") if "causal" in attrs else ()
    return dims, ("page_table", *options, "sinks", "lse")


SPEC = AttentionSpec(
    "attention_decode", modes=[paged, dense, paged], generic=generic, queries=lambda n: (n - 1) % 8 + 1,
    large={"heads": 8, "head_dim": 128, "v_dim": 128},
    probes=[{"n": 0, "keys": 3000}],  # sequences that are cut whatever the batch is
)  # fmt: skip


def test_attention_decode(plan):
    plan.check()


def masked(dtypes, level):
    """A case for every kind of mask and score."""
    for i, (attrs, extras) in enumerate(MASKED[:4] if level == "smoke" else MASKED):
        yield SPEC.make(dtypes, 0, mode=[dense, paged][i % 2], q_len=[1, 4][i // 2 % 2], kv_len=333, heads=(8, 2),
                        dims=TILES[i % 4], batch=3, extras=extras, attrs=attrs, page_size=16, seed=8 + 2 * i)  # fmt: skip


def test_error_of_a_chain_of_ops(device, level):
    for dtypes in SPEC.combos():
        for case in masked(dtypes, level):
            check_beside(SPEC, device, case)


def test_error_of_torch(device, level):
    if level == "smoke":
        pytest.skip("other libraries' kernels are not for the sanitizers")
    chain = by_torch(pytest.importorskip("torch"), device)
    for dtypes in beside_torch(SPEC, device):
        for case in masked(dtypes, level):
            check_beside(SPEC, device, case, chain)
