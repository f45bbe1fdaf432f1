# SPDX-License-Identifier: Apache-2.0
"""f32 in a context that allows TF32: the row that is selected there, and the library's, which takes TF32 where it may but does
not need it. Rows that need it have their cases in the tests of their ops."""

import einkorn
import pytest
from harness import AUTO, Prepared, Refused, all_specs, rows
from harness.run import reproducer

OPS = ("gemm", "gemm_batched", "gemm_epilogue", "mlp")
# (m, n, k): a row or a few; sizes that fit nothing; tiles, few and many; a long k.
SIZES = [(1, 256, 256), (4, 264, 520), (7, 9, 63), (65, 136, 72), (129, 264, 136), (200, 264, 264), (72, 72, 5128)]


def cases(spec):
    """Every size with its weights by columns and by rows; variants take turns. Then the first one again with nothing fused,
    which is all that the library takes."""
    (dtypes,) = [c for c in spec.combos() if {d for _, d in c} == {"f32"}]
    layouts = ["columns:" + ",".join(spec.layouts[0]), "dense"]
    for i, size in enumerate(SIZES):
        for j, strides in enumerate(layouts):
            yield spec.case(dtypes, size, i + 3 * j, (), strides=strides)
            yield spec.case(dtypes, size, i, (), {}, (), strides=strides)


@pytest.mark.parametrize("name", OPS)
def test_in_a_tf32_context(name, device, level):
    spec, context = all_specs()[name], einkorn.Context(device, flags=("tf32",))
    tf32 = device != "cpu"  # the CPU has none: results are as close as without
    asked = [*(k.name for k in rows.usable(name, device) if k.name.endswith("_cublaslt")), AUTO]
    took = set()
    for case in [*cases(spec)][:: 5 if level == "smoke" else 1]:
        prepared = Prepared(spec, case)
        for row in asked:
            try:
                prepared.check(prepared.run(device, row, context), tf32)
            except Refused:
                continue
            except AssertionError as e:
                raise AssertionError(f"{e}\nwith the flag tf32; without it: {reproducer(spec, case, row)}") from None
            took.add(row)
    untested = [row for row in asked if row not in took and not rows.lacks_library(row)]
    assert not untested, f"refused every case: {', '.join(untested)}"
