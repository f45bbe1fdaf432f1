# SPDX-License-Identifier: Apache-2.0
"""What the dispatcher says about a call is what it does."""

import dataclasses

import einkorn
import numpy as np
import pytest
from harness import Prepared, rows
from harness.memory import Arena


def test_explain(spec, device):
    prepared = Prepared(spec, spec.case(spec.combos()[-1], 1024, 0, (4,)))
    arena, context = Arena.at_least(device, prepared.nbytes), einkorn.Context(device)
    text = context.explain(spec.op, **prepared.arguments(arena))
    arena.upload(prepared.block)  # page numbers and the like: what a case before left there leads anywhere
    prepared.call(arena, context)
    assert f"-> {context.last_kernel()}" in text
    for row in einkorn.kernels(spec.op):
        assert row.name in text, f"{row.name} is neither chosen nor refused:\n{text}"


def test_explain_of_nothing(spec, device, monkeypatch):
    """What would run can be asked for empty tensors too: no row's reasons divide by what may be 0."""
    monkeypatch.setattr(spec, "inputs", lambda rng, t, a: None)  # nothing is computed, and a table may have no pages
    arena, context = Arena.at_least(device, 1 << 22), einkorn.Context(device)
    for dtypes in spec.combos():
        case = spec.case(dtypes, 64, 0, (4,))
        empty = [dataclasses.replace(case, lead=(0,))] if case.lead else []
        for name, _ in case.dims:
            empty.append(dataclasses.replace(case, dims=tuple((d, 0 if d == name else n) for d, n in case.dims)))
        for case in filter(spec.legal, empty):
            arguments = Prepared(spec, case).arguments(arena)
            assert "-> " in context.explain(spec.op, **arguments), case


def test_rules_about_the_batch(device):
    """Batch-invariant calls pass over rules about what the rest of a batch has a say in, given or derived, and no others."""
    plain, invariant = einkorn.Context(device), einkorn.Context(device, flags=("batch_invariant",))

    def obeyed(context, op, rule, arguments):
        context.set_table(f"{op} {rule} : {rows.usable(op, device)[-1].name}")
        return "line 1 of the routing table" in context.explain(op, **arguments)

    def zeros(*shape, dtype="float32"):
        return einkorn.from_numpy(np.zeros(shape, dtype), device)

    q, k, kv_len = zeros(3, 2, 4, 16), zeros(3, 9, 4, 16), zeros(3, dtype="int32")
    given = {"q": q, "k": k, "v": k, "kv_len": kv_len}
    for op, batch, others in (
        ("attention", ("rows=6", "pages=3", "batch=3", "q_len=2", "max_kv=9"), ("heads=4", "T=f32", "causal=0")),
        ("attention_decode", ("batch=3", "max_kv=9", "page_size=9"), ("q_len=2", "head_dim=16")),
    ):
        for rule in (*batch, *others):
            assert obeyed(plain, op, rule, given), f"{op} {rule}"
            assert obeyed(invariant, op, rule, given) == (rule in others), f"{op} {rule}"
        assert not obeyed(invariant, op, f"{others[0]} {batch[-1]}", given)  # one such condition is enough


def test_every_device_has_rows(op):
    kinds = {k.device for k in einkorn.kernels(op)}
    assert "cpu" in kinds
    if "cuda" in einkorn.build_info():
        assert "cuda" in kinds, f"{op} has no CUDA row"


def test_row_names(op):
    names = [k.name for k in einkorn.kernels(op)]
    assert len(set(names)) == len(names)
    for k in einkorn.kernels(op):
        words = ("cpu",) if k.device == "cpu" else ("cuda", "sm75", "sm80", "sm90", "gemv", "cublaslt")
        assert k.name.removeprefix(f"{op}_").split("_")[0] in words


def test_force_unknown(op, device):
    context = einkorn.Context(device)
    with pytest.raises(einkorn.Error) as e:
        context.force(op, "no_such_row")
    assert e.value.status == "not_found"
