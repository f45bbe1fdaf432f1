# SPDX-License-Identifier: Apache-2.0
"""What the dispatcher says about a call is what it does."""

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
