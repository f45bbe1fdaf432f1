# SPDX-License-Identifier: Apache-2.0
"""What the dispatcher says about a call is what it does."""

import dataclasses

import einkorn
import pytest
from harness import Prepared
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
