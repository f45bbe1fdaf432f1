# SPDX-License-Identifier: Apache-2.0
"""What the op tests share. A test file of an op holds a reference and a Spec; everything else follows from the schema."""

from .dtypes import decode, encode, round_to
from .matrix import MatrixSpec
from .run import AUTO, Prepared, Refused, batch_of, check_batches, check_case, over_rows
from .spec import Spec, all_specs
from .tolerance import Expected, Quantized

__all__ = [
    "AUTO", "Expected", "MatrixSpec", "Prepared", "Quantized", "Refused", "Spec", "all_specs", "batch_of", "check_batches",
    "check_case", "decode", "encode", "over_rows", "round_to",
]  # fmt: skip
