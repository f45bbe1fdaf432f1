# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools

import einkorn
import numpy as np
import pytest
from harness import Prepared, Refused, decode, encode, rows
from harness.attention import GARBAGE, AttentionSpec
from harness.attention_checks import TILES, check_beside, check_beside_torch, check_same_bits, masks, name_of

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


def replayed(mode, attrs, extras, dims):
    """Five sequences over several tiles, whose lengths change between the replays of a graph."""
    return {"mode": mode, "q_len": 40, "kv_len": 150, "batch": 5, "page_size": 16, "heads": (4, 2), "dims": dims,
            "attrs": attrs, "extras": extras}  # fmt: skip


SPEC = AttentionSpec(
    "attention", modes=[dense, packed, dense_lengths, packed_queries, paged_dense_q, packed_keys, paged], generic=generic,
    layouts=[(dense, dense_lengths, packed_queries), (packed, packed_keys), (paged, paged_dense_q)],
    queries=lambda n: n, large={"heads": 8, "page_size": 64, "head_dim": 128, "v_dim": 128},
    more_large=[{"dims": {"heads": 8, "page_size": 16, "head_dim": 64, "v_dim": 64}, "dtypes": (("T", "f32"),)}],
    replays=[
        replayed(packed, {"causal": True}, ("alibi", "lse"), (64, 64)), replayed(packed, {}, ("sinks", "lse"), (128, 128)),
        replayed(packed_keys, {"window_left": 70}, (), (192, 128)),
        replayed(packed_queries, {"causal": True}, ("prefix_len", "lse"), (64, 64)),
        replayed(dense_lengths, {"window_left": 90, "window_right": 20}, ("lse",), (128, 128)),
        replayed(paged, {"causal": True, "window_left": 60, "softcap": 10.0}, ("prefix_len", "sinks", "lse"), (64, 64)),
        replayed(paged_dense_q, {"causal": True}, ("lse",), (256, 256)),
    ],
)  # fmt: skip


def test_attention(plan):
    plan.check()


def test_sequences_alone(device, level):
    """A sequence has the same bits in any batch, also where a larger one brings tiles of more queries (40 of them)."""
    context = einkorn.Context(device, flags=("batch_invariant",))
    kinds = [(9, (128, 128)), (40, (128, 128))]
    kinds += [(40, (64, 64)), (9, (192, 128)), (40, (256, 256)), (9, (512, 512))] if level == "full" else []
    for dtypes, (q_len, dims) in itertools.product(SPEC.combos(), kinds):

        def case_of(n, dtypes=dtypes, q_len=q_len, dims=dims):
            return SPEC.make(
                dtypes, 0, mode=dense_lengths, q_len=q_len, kv_len=90, batch=n, heads=(4, 2), dims=dims,
                attrs={"causal": True, "window_left": 70}, extras=("prefix_len", "sinks", "lse"),
            )  # fmt: skip

        whole = Prepared(SPEC, case_of(128))
        for row in [k.name for k in rows.usable("attention", device) if k.batch_invariant]:
            try:
                want = whole.results(whole.run(device, row, context))
            except Refused:
                continue
            for n in range(1, 128) if level == "full" and (q_len, dims) == kinds[0] else (1, 2, 17, 127):
                inputs = {k: v if k == "sinks" else v[-n:] for k, v in whole.inputs.items()}
                part = Prepared(SPEC, case_of(n), inputs)
                for name, (values, _) in part.results(part.run(device, row, context)).items():
                    same = values.tobytes() == np.ascontiguousarray(want[name][0][-n:]).tobytes()
                    assert same, f"{row}: {name} differs in a batch of {n} from one of 128"


def with_room(full, keys):
    """The same sequences in a cache that has room for so many keys each; packed, followed by one that makes it so many on average."""
    dims, inputs, lead = dict(full.case.dims), dict(full.inputs), full.case.lead
    beyond = {"constant_values": encode(np.float64("nan"), full.dtypes["k"])}
    if "page_table" in inputs:
        more, longer = -(-keys // dims["page_size"]) - dims["max_pages"], "max_pages"
        inputs["page_table"] = np.pad(inputs["page_table"], ((0, 0), (0, more)), constant_values=GARBAGE)
    elif "cu_kv" in inputs:
        more, longer, beyond = keys * dims["cu_len"] - dims["page_size"], "page_size", {"mode": "wrap"}
        inputs |= {
            name: np.append(inputs[name], inputs[name][-1] + n) for name, n in {"cu_q": 1, "cu_kv": more}.items()
        }
        inputs["q"], lead = np.append(inputs["q"], inputs["q"][:1], axis=0), (lead[0] + 1,)
        dims["cu_len"] += 1
    else:
        more, longer = keys - dims["page_size"], "page_size"
    dims[longer] += more
    if longer == "page_size":
        inputs |= {name: np.pad(inputs[name], ((0, 0), (0, more), (0, 0), (0, 0)), **beyond) for name in ("k", "v")}
    return Prepared(SPEC, dataclasses.replace(full.case, dims=tuple(dims.items()), lead=lead), inputs)


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_room_for_longer_sequences(dtypes, device, level):
    """By the room that caches have, kernels are chosen whose next piece of work comes early or late; the bits are the same. On
    a GPU a block has several pieces: of all blocks of keys, of one, of none, and with some that not all warpgroups see."""
    context = einkorn.Context(device, flags=("batch_invariant",))
    lengths = {"kv_len": [300, 0, 171]}, {"cu_kv": [0, 300, 300, 471]}
    kinds = [
        (dense_lengths, {}), (dense_lengths, {"causal": True}), (paged_dense_q, {"causal": True, "window_left": 63}),
        (packed, {}), (packed, {"causal": True}),
    ]  # fmt: skip
    heads = (4, 2) if device == "cpu" else (36, 4)
    promised, taken = [k.name for k in rows.usable("attention", device) if k.batch_invariant], set()
    if level == "smoke":  # for sanitizers, which are slow
        promised, kinds = [row for row in promised if row == "attention_sm90"], [kinds[0], kinds[2]]
        heads = (24, 4)
        if not promised or dict(dtypes)["T"] == "f32":
            pytest.skip("no row with kernels for less room and for more")
    for i, (mode, attrs) in enumerate(kinds):
        case = SPEC.make(
            dtypes, i, mode=mode, q_len=257, kv_len=157 if mode is packed else 300, batch=3, lengths="full", page_size=16,
            heads=heads, dims=(128, 128), attrs=attrs, extras=("sinks", "lse"),
        )  # fmt: skip
        full = Prepared(SPEC, case, Prepared(SPEC, case).inputs | lengths[mode is packed])
        roomy = with_room(full, 4500)
        for row in promised:
            try:
                first = full.run(device, row, context)
            except Refused:
                continue
            taken.add(row)
            full.check(first)
            want = full.results(first)
            for _ in range(1 if device == "cpu" or level == "smoke" else 5):
                if level != "smoke":
                    assert np.array_equal(full.run(device, row, context), first), f"{row}: another result, {case}"
                after = roomy.run(device, row, context)
                roomy.check_untouched(after)
                for name, (values, _) in roomy.results(after).items():
                    same = values[: len(want[name][0])].tobytes() == want[name][0].tobytes()
                    assert same, f"{row}: {name} differs where there is room, {roomy.case}"
    missing = {row for row in promised if row == "attention_sm90" and dict(dtypes)["T"] != "f32"} - taken
    assert taken and not missing, f"took no case: {missing or promised}"


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_nan_of_another_sequence(dtypes, device, level):
    """Keys and values of sequences lie side by side, and tiles reach into the next one: its NaN must stay there."""
    nan, seen = encode(np.float64("nan"), dict(dtypes)["T"]), set()
    for i, (mode, attrs) in enumerate([(packed, {}), (packed, {"causal": True}), (paged, {"causal": True})]):
        case = SPEC.make(
            dtypes, i, mode=mode, q_len=40, kv_len=150, batch=3, lengths="full", page_size=16, heads=(4, 2),
            dims=(128, 128), attrs=attrs, extras=("lse",),
        )  # fmt: skip
        clean = Prepared(SPEC, case)
        inputs = {name: value.copy() for name, value in clean.inputs.items()}
        if mode is packed:
            theirs = (0, slice(*inputs["cu_kv"][1:3]))
        else:
            theirs = inputs["page_table"][1][: -(-inputs["kv_len"][1] // 16)]
        inputs["k"][theirs] = inputs["v"][theirs] = nan
        broken, queries = Prepared(SPEC, case, inputs), slice(*inputs["cu_q"][1:3])
        for row in [k.name for k in rows.usable("attention", device)]:
            try:
                want = clean.results(clean.run(device, row))
            except Refused:
                continue
            seen.add(row)
            for name, (values, _) in broken.results(broken.run(device, row)).items():
                ours = [np.delete(x, np.r_[queries], axis=0) for x in (values, want[name][0])]
                assert ours[0].tobytes() == ours[1].tobytes(), f"{row}: {name} has another sequence's NaN, {case}"
                assert np.isnan(decode(values[queries], broken.dtypes[name])).all(), (
                    f"{row}: {name} lost its NaN, {case}"
                )
    assert seen, "no row took a case"


def masked(level):
    """Modes and heads take turns, and begin with others in every dtype. Every mask also with heads that all rows take, in
    another mode."""
    for dtypes, i, attrs, extras in masks(SPEC, level):
        turn = i + SPEC.combos().index(dtypes)
        for more, dims in enumerate(dict.fromkeys([TILES[turn % len(TILES)], TILES[0]])):
            mode = [dense, packed, paged][(turn + more) % 3]
            yield SPEC.make(dtypes, 0, mode=mode, q_len=70, kv_len=333, heads=(4, 2), batch=2, dims=dims, extras=extras,
                            attrs=attrs, page_size=16, seed=8 + 2 * i)  # fmt: skip


def test_error_of_a_chain_of_ops(device, level):
    check_beside(SPEC, device, masked(level))


def test_error_of_torch(device, level):
    check_beside_torch(SPEC, device, level, masked(level))


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_same_bits_for_every_head_dim(dtypes, device, level):
    """With the tiles for plain scores and those for softcap and ALiBi, and the one for calls without masks."""
    if level == "smoke":
        pytest.skip("levels ci and full")
    plain, shaped = {"causal": True, "window_left": 150}, {"causal": True, "softcap": 10.0}
    kinds = [(packed, plain, ("sinks", "lse")), (paged, shaped, ("alibi", "lse"))]
    cases = [*itertools.product(TILES, kinds), ((128, 128), (dense, {}, ("lse",)))]
    check_same_bits(SPEC, device, level, [
        SPEC.make(dtypes, i, mode=mode, q_len=70, kv_len=200, heads=(2, 1), batch=2, dims=dims, attrs=attrs, extras=extras,
                  page_size=16)
        for i, (dims, (mode, attrs, extras)) in enumerate(cases)
    ])  # fmt: skip
