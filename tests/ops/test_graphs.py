# SPDX-License-Identifier: Apache-2.0
"""Every op captured once and replayed 100 times with other data in the same memory."""

import functools

import einkorn
import numpy as np
import pytest
from harness import AUTO, Prepared, Refused, all_specs, over_rows, rows
from harness.memory import Arena

SHARDS = 8  # processes of tools/gpu-check
SANITIZERS = ("memcheck",)  # under which it runs there too

REPLAYS = {"smoke": 10, "ci": 100, "full": 100}
CALLS = 10  # in a graph of overlapping launches


def usable_rows(spec, cuda):
    return [*(k.name for k in rows.usable(spec.op, cuda)), AUTO]


def some_dtypes(spec):
    """bf16 throughout, where that can be, and the last; every dtype of a cache, which has kernels for each."""
    combos = spec.combos()
    caches = {dict(c)["K"]: c for c in combos if "K" in dict(c)}
    return [c for c in combos if c == combos[-1] or {d for _, d in c} == {"bf16"} or c in caches.values()]


def prepare_changed(spec, case):
    """What the replays of a graph are to find in their memory, one after the other."""
    changed = [Prepared(spec, c) for c in spec.changed(case)]
    layouts = [{n: (x.start, x.shape, x.strides) for n, x in p.placed.items()} for p in changed]
    assert all(layout == layouts[0] for layout in layouts), f"replays have other strides, {case}"
    return changed


def test_capture_and_replay(spec, cuda, level):
    context = einkorn.Context(cuda, flags="tf32", stream=einkorn.Stream(cuda))

    @functools.cache
    def prepare(case):
        changed = prepare_changed(spec, case)
        return changed, Arena(cuda, changed[0].nbytes, context)

    def check(row, case):
        changed, arena = prepare(case)
        eager = []
        for p in changed:
            try:
                eager.append(p.run(cuda, row, context, arena))  # also grows the workspace, which a capture can't
            except Refused:
                return False
            p.check(eager[-1], rows.needs_tf32(spec.op, context.last_kernel()))
        context.force(spec.op, None if row == AUTO else row)
        with context.capture() as graph:
            changed[0].call(arena, context)
        context.force(spec.op, None)
        arena.upload(changed[0].block)
        assert np.array_equal(arena.download(changed[0].nbytes), changed[0].block), "the capture itself ran the op"
        for i in range(REPLAYS[level]):
            p = changed[i % 4]
            arena.upload(p.block)
            graph.replay()
            assert np.array_equal(arena.download(p.nbytes), eager[i % 4]), f"{row}: replay {i} differs, {p.case}"
        return True

    over_rows(spec, usable_rows(spec, cuda), some_dtypes(spec), check, spec.replays)


@pytest.mark.parametrize("name", ["attention", "attention_decode"])
def test_replays_change_lengths(name):
    """Lengths and page tables are others in every replay, of every case, and every way to give them is among the cases."""
    spec, given = all_specs()[name], set()
    for case in spec.replays(some_dtypes(spec)[0]):  # lengths are drawn alike for all
        changed = prepare_changed(spec, case)
        names = {"cu_q", "cu_kv", "kv_len", "page_table", "prefix_len"} & changed[0].inputs.keys()
        assert names & {"cu_q", "cu_kv", "kv_len"}, f"no lengths, {case}"
        for n in names:
            assert len({p.inputs[n].tobytes() for p in changed}) == len(changed), f"{n} stays as it was, {case}"
        if "kv_len" in names:
            most = changed[0].values["max_kv"]
            found = {int(n) for p in changed for n in np.clip(p.inputs["kv_len"], 0, most)}
            assert {0, most} < found, f"no sequence is empty, or full, or neither, {case}"
        given |= names
    assert given == {t.name for t in spec.schema.tensors} & {"cu_q", "cu_kv", "kv_len", "page_table", "prefix_len"}


def test_overlapping_launches(spec, cuda, level):
    """Calls one after the other, each of which may begin before the one before has ended, give the bits of plain ones."""
    contexts = [einkorn.Context(cuda, flags=f, stream=einkorn.Stream(cuda)) for f in (("tf32",), ("tf32", "pdl"))]

    @functools.cache
    def prepare(case):
        prepared = Prepared(spec, case)
        return prepared, [Arena(cuda, prepared.nbytes, context) for context in contexts]

    def check(row, case):
        prepared, arenas = prepare(case)
        after = []
        try:
            for context, arena in zip(contexts, arenas, strict=True):
                prepared.run(cuda, row, context, arena)  # grows the workspace
                context.force(spec.op, None if row == AUTO else row)
                with context.capture() as graph:
                    for _ in range(CALLS):
                        prepared.call(arena, context)
                context.force(spec.op, None)
                for _ in range(REPLAYS[level] // 5 if after else 1):
                    arena.upload(prepared.block)
                    graph.replay()
                    after.append(arena.download(prepared.nbytes))
        except Refused:
            return False
        for i, block in enumerate(after[1:]):
            assert np.array_equal(block, after[0]), f"{row}: overlapping replay {i} differs, {prepared.case}"
        return True

    over_rows(spec, usable_rows(spec, cuda), some_dtypes(spec), check, spec.replays)


def test_workspace_can_not_grow_in_a_capture(cuda):
    spec = all_specs()["rms_norm_backward"]
    context = einkorn.Context(cuda, stream=einkorn.Stream(cuda))
    prepared = Prepared(spec, spec.case(spec.combos()[-1], 4096, 0, (300,)))
    arena = Arena(cuda, prepared.nbytes, context)
    need = context.workspace(spec.op, **prepared.arguments(arena))
    if need == 0:
        pytest.skip("no workspace needed")
    with pytest.raises(einkorn.Error) as e, context.capture():
        prepared.call(arena, context)
    assert e.value.status == "workspace" and "ek_context_reserve" in str(e.value)
    context.reserve(need)
    arena.upload(prepared.block)
    with context.capture() as graph:
        prepared.call(arena, context)
    graph.replay()
    prepared.check(arena.download(prepared.nbytes))


def test_no_capture_on_the_cpu():
    context = einkorn.Context("cpu")
    with pytest.raises(einkorn.Error) as e, context.capture():
        pass
    assert e.value.status == "unsupported"
