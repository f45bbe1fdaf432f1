# SPDX-License-Identifier: Apache-2.0
import dataclasses

import einkorn
import numpy as np
import pytest
from harness import AUTO, Prepared, Refused, batch_of, check_batches, check_case, encode, rows
from harness.attention import GARBAGE, AttentionSpec
from harness.attention_checks import TILES, check_beside, check_beside_torch, check_same_bits, masks, name_of

SHARDS = 6  # processes of tools/gpu-check


# Each mode: no leading dims, the dims of its own, and the tensors that come with it.
def dense(q_len, kv_len, batch, page_size):
    return (), {"batch": batch, "q_len": q_len, "pages": batch, "page_size": kv_len}, ()


def paged(q_len, kv_len, batch, page_size):
    most = -(-kv_len // page_size)
    own = {"pages": max(batch * most, 1), "page_size": page_size, "max_pages": most}
    return (), {"batch": batch, "q_len": q_len, **own}, ("page_table",)


def shared(q_len, kv_len, batch, page_size):
    """Pages for two sequences, of which all have some in common."""
    _, own, given = paged(q_len, kv_len, batch, page_size)
    return (), {**own, "pages": 2 * own["max_pages"]}, given


def common(q_len, kv_len, batch, page_size):
    """Pages for one sequence, which all have."""
    _, own, given = paged(q_len, kv_len, batch, page_size)
    return (), {**own, "pages": own["max_pages"]}, given


def generic(n, attrs, lead):
    size = 16
    pages = -(-n // size)
    dims = {"batch": lead[0], "q_len": 2, "heads": 4, "head_dim": 64, "pages": max(2 * pages, 2), "page_size": size,
            "kv_heads": 2, "v_dim": 64, "max_pages": pages}  # fmt: skip
    options = ("prefix_len", "alibi") if "causal" in attrs else ()
    return dims, ("page_table", *options, "sinks", "lse")


def replayed(mode, batch, kv_len, heads, extras, dim=64, **rest):
    """Lengths that change between the replays of a graph."""
    return {"mode": mode, "q_len": 1, "kv_len": kv_len, "batch": batch, "heads": heads, "dims": (dim, dim), "page_size": 16,
            "attrs": {"causal": True}, "extras": extras, **rest}  # fmt: skip


SPEC = AttentionSpec(
    "attention_decode", modes=[paged, dense, paged], generic=generic, queries=lambda n: (n - 1) % 8 + 1,
    layouts=[(dense,), (paged,)], large={"heads": 8, "head_dim": 128, "v_dim": 128},
    more_large=[{"dims": {"heads": 4, "head_dim": 128, "v_dim": 128, "pages": 8, "max_pages": 2}}],  # 4 rows a kv head
    # Sequences that are cut whatever the batch is: by one cluster, and on an H200 by several, which meet in memory.
    probes=[{"n": 0, "keys": 3000}, {"n": 0, "keys": 5000, "lengths": "full"}],
    # By the lengths kernels see whether a cluster takes an item, or several, all or fewer of those that there are; stretches of
    # all keys are cut; or sequences are left whole.
    replays=[
        replayed(paged, 4, 100, (2, 2), ("lse",)), replayed(dense, 5, 300, (4, 2), ("prefix_len", "alibi", "lse")),
        replayed(shared, 6, 700, (4, 1), ("sinks", "lse")), replayed(shared, 128, 100, (4, 2), ()),
        replayed(shared, 4, 2000, (2, 1), ("lse",), page_size=1), replayed(paged, 2, 4500, (4, 4), ("lse",), page_size=1),
        replayed(shared, 3, 6500, (2, 2), ("lse",), page_size=64), replayed(shared, 4, 900, (8, 2), ("lse",), dim=128),
        replayed(shared, 4, 900, (8, 2), ("lse",), dim=256), replayed(shared, 4, 900, (8, 2), ("lse",), dim=512),
        # Wide heads, whose loading warps read lengths themselves: keys one by one; blocks to spare, on an H200 in ten pairs an item;
        # 12 rows; 32 sequences, and more than a warp has lanes. Clusters join the items of some replays and not of others.
        replayed(common, 8, 2400, (2, 1), ("lse",), dim=512, page_size=1),
        replayed(common, 5, 2500, (1, 1), ("lse",), dim=512, page_size=64),
        replayed(common, 4, 3000, (24, 2), ("lse",), dim=256, page_size=64),
        replayed(common, 32, 900, (2, 1), ("lse",), dim=512), replayed(common, 33, 900, (2, 1), ("lse",), dim=512),
    ],
)  # fmt: skip


def test_attention_decode(plan):
    plan.check()


def masked(level):
    """Modes, queries and heads take turns, heads beginning with others in every dtype. Every mask has 16 rows of a kv head and,
    with heads that all rows take, 2."""
    for dtypes, i, attrs, extras in masks(SPEC, level):
        tile, q_len = TILES[(i + SPEC.combos().index(dtypes)) % len(TILES)], [1, 4][i // 2 % 2]
        kinds = [((8, 2), q_len, tile), ((4, 2), 1, TILES[0])] + ([((8, 2), 4, TILES[0])] if q_len == 1 else [])
        for more, (heads, q_len, dims) in enumerate(kinds):
            yield SPEC.make(dtypes, 0, mode=[dense, paged][(i + more) % 2], q_len=q_len, kv_len=333, heads=heads, dims=dims,
                            batch=3, extras=extras, attrs=attrs, page_size=16, seed=8 + 2 * i)  # fmt: skip


def test_error_of_a_chain_of_ops(device, level):
    check_beside(SPEC, device, masked(level))


def test_error_of_torch(device, level):
    check_beside_torch(SPEC, device, level, masked(level))


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_same_bits_for_every_head_dim(dtypes, device, level):
    """Sequences that are cut. A kv head has 4 rows, or more than the 8 of a small tile: dtypes take turns."""
    if level == "smoke":
        pytest.skip("levels ci and full")
    cases, first = [], SPEC.combos().index(dtypes)
    for i, dims in enumerate(TILES):
        few = (first + i) % 2
        cases.append(SPEC.make(
            dtypes, i, mode=shared, q_len=1 if few else 3, kv_len=400, heads=(4, 1), batch=3, dims=dims, extras=("lse",),
            attrs={"causal": True} if few else {"causal": True, "softcap": 10.0}, page_size=16 if few else 1,
        ))  # fmt: skip
    check_same_bits(SPEC, device, level, cases)


def test_infinite_value(device):
    """One of the first key, which all queries see, is infinite in its column and nowhere else: a sum over fewer groups of warps
    than it has places for adds nothing of the first group's. Every row takes some of the cases."""
    names = [*(k.name for k in rows.usable(SPEC.op, device)), AUTO]
    took = set()
    for dtypes in (c for c in SPEC.combos() if dict(c)["K"] not in ("e4m3", "i8")):  # these caches hold no infinity
        for i, (dims, heads) in enumerate((d, h) for d in TILES for h in ((4, 1), (12, 1))):
            # No ALiBi: a weight so small that 16 bits round it to 0 makes NaN of infinity.
            case = SPEC.make(dtypes, i, mode=dense, q_len=1, kv_len=400, lengths="full", heads=heads, batch=2, dims=dims,
                             extras=("lse",), attrs={"causal": True, "scale": 0.01}, seed=4 * i)  # fmt: skip
            drawn = Prepared(SPEC, case).inputs
            drawn["v"][:, 0, :, 3] = encode(np.array(np.inf), dict(dtypes)["K"])
            full = Prepared(SPEC, case, drawn)
            assert np.isinf(full.expected()["y"].value[..., 3]).all(), "the reference sees no infinity"
            took |= {row for row in names if check_case(full, device, row)}
    assert took == set(names), f"took none: {set(names) - took}"


# Batch, heads, keys and page size: an H200 has for an item eight pairs of blocks, eleven, sixteen, four clusters of eight, and
# one cluster of eight. Three rows of a kv head do not divide evenly among blocks.
LONG = [
    (1, (24, 8), 7000, 64), (1, (24, 8), 5000, 1), (2, (9, 3), 5000, 16), (1, (4, 4), 65600, 64), (1, (8, 4), 9000, 64),
    (1, (24, 8), 3000, 64),
]  # fmt: skip


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_few_long_sequences(dtypes, device, level):
    """Keys of an item that go to several clusters, which meet in memory, or to one. Dtypes take turns in the widths."""
    if level != "full" or device == "cpu":
        pytest.skip("on a GPU, level full")
    context = einkorn.Context(device, flags=("deterministic",))
    for i, (batch, heads, keys, page) in enumerate(LONG):
        dims = TILES[(i + SPEC.combos().index(dtypes)) % len(TILES)] if keys < 10000 else (64, 64)
        full = Prepared(SPEC, SPEC.make(
            dtypes, i, mode=paged, q_len=1, kv_len=keys, lengths="full", heads=heads, batch=batch, dims=dims,
            page_size=page, attrs={"causal": True}, extras=("lse",),
        ))  # fmt: skip
        assert (full.inputs["kv_len"] >= keys).all()
        for row in [*(k.name for k in rows.usable(SPEC.op, device) if k.deterministic), AUTO]:
            try:
                first = full.run(device, row, context)
            except Refused:
                continue
            full.check(first)
            for _ in range(3):
                assert np.array_equal(full.run(device, row, context), first), f"{row}: another result, {full.case}"


PART = 512  # keys of a part where results must not depend on the batch: kFixedKeys of attention_split.h
BATCHES = {"ci": [1, 2, 5, 33, 128], "full": range(1, 129)}


def wider(full, n):
    """A batch whose page table has room for longer sequences, as that of a batch with one of these would."""
    part = batch_of(full, n)
    room = n % 3
    dims = {**dict(part.case.dims), "max_pages": part.values["max_pages"] + room}
    table = np.pad(part.inputs["page_table"], ((0, 0), (0, room)), constant_values=GARBAGE)
    case = dataclasses.replace(part.case, dims=tuple(dims.items()))
    return Prepared(SPEC, case, part.inputs | {"page_table": table})


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_cut_sequences_in_every_batch(dtypes, device, level):
    """Sequences of several parts have the same bits in a batch of any size, also beside longer ones."""
    if level == "smoke":
        pytest.skip("levels ci and full")
    context = einkorn.Context(device, flags=("batch_invariant",))
    promised = [*(k.name for k in rows.usable(SPEC.op, device) if k.batch_invariant), AUTO]
    batches = BATCHES[level] if device != "cpu" else BATCHES["ci"]
    # Rows for all kernels; by samples, more of them than an item has, and the other tiles.
    some = BATCHES["ci"] if level == "full" else BATCHES["ci"][::2]
    kinds = [((4, 1), 1, 64, 16, batches), ((10, 1), 2, 64, 16, BATCHES["ci"])]
    kinds += [
        ((4, 1), 1, 128, 1, some),
        ((2, 1), 1, 256, 64, some),
        ((9, 1), 1, 256, 16, some),
        ((2, 1), 1, 512, 16, some),
    ]
    for heads, q_len, dim, page, sizes in kinds:
        case = SPEC.make(dtypes, 0, mode=shared, q_len=q_len, kv_len=1500, heads=heads, batch=12, dims=(dim, dim),
                         page_size=page, attrs={"causal": True}, extras=("sinks", "lse"))  # fmt: skip
        drawn = Prepared(SPEC, case)
        # Not more than there is: a wider page table would have it.
        lengths = np.clip(drawn.inputs["kv_len"], 0, drawn.values["max_kv"])
        assert (lengths > PART).sum() >= 4 and (lengths > 2 * PART).any(), "no sequences that are cut"
        full = Prepared(SPEC, case, drawn.inputs | {"kv_len": lengths})
        for row in promised:
            if check_batches(full, device, row, context, sizes, wider):
                full.check(full.run(device, row, context))
            else:
                wide = heads[0] // heads[1] * q_len > 4 or dim > 256
                assert (wide and row == "attention_decode_cuda_split") or dict(dtypes)["T"] == "f32", (
                    f"{row} refused {case}"
                )
