# SPDX-License-Identifier: Apache-2.0
"""Which rows exist, which can run here, which really ran. The run ends with those that never did."""

import functools
import re
from collections import Counter

import einkorn

_ran = Counter()
_refusals = {}  # row -> reasons


def ran(row):
    _ran[row] += 1


def refused(row, reason):
    _refusals.setdefault(row, Counter())[reason] += 1


def usable(op, device):
    """Rows of an op that this device can run, in table order."""
    kind, target = device.partition(":")[0], _targets()[device]
    return [k for k in einkorn.kernels(op) if k.device == kind and k.target <= target]


def unusable(op):
    """Rows that no device here can run."""
    here = {k.name for d in _targets() for k in usable(op, d)}
    return [k.name for k in einkorn.kernels(op) if k.name not in here]


@functools.cache
def needs_tf32(op, row):
    return any(k.name == row and k.needs_tf32 for k in einkorn.kernels(op))


NO_LIBRARY = "its library is not here"


def lacks_library(row):
    """Whether the row calls a library that this machine does not have, as its refusal says."""
    return any(re.match(r"no .* library is found", reason) for reason in _refusals.get(row, ()))


def never_ran(ops, devices):
    """(rows that could have run here, rows whose library this machine lacks) of those that did not run."""
    found = [k.name for op in ops for d in devices for k in usable(op, d) if not _ran[k.name]]
    return [row for row in found if not lacks_library(row)], [row for row in found if lacks_library(row)]


def refusals(row):
    return [f"{n}x {reason}" for reason, n in _refusals.get(row, Counter()).most_common(3)]


def count():
    return len(_ran), sum(_ran.values())


def _targets():
    return {d.device: d.target for d in einkorn.devices()}
