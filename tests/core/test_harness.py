# SPDX-License-Identifier: Apache-2.0
"""The suite's own account of which kernel rows ran."""

from collections import Counter

from harness import rows


def test_rows_that_did_not_run(monkeypatch):
    """What could have run here is told apart from what only lacks its library."""
    names = [k.name for k in rows.usable("gemm", "cpu")]
    lacking, missed, *ran = names
    monkeypatch.setattr(rows, "_ran", Counter(ran))
    monkeypatch.setattr(rows, "_refusals", {})
    assert rows.never_ran(["gemm"], ["cpu"]) == ([lacking, missed], [])
    rows.refused(lacking, "no BLAS library is found")
    rows.refused(missed, "k is too long")
    assert rows.never_ran(["gemm"], ["cpu"]) == ([missed], [lacking])
    assert rows.refusals(missed) == ["1x k is too long"]
