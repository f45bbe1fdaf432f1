# SPDX-License-Identifier: Apache-2.0
"""Run by test_lists.py with the package built around tests/core/schemas/future.toml: what adamw does with lists."""

import weakref

import einkorn
import numpy as np

STEP = np.zeros((), np.int64)
GRAD, PARAM, FIRST, SECOND = ([np.ones(shape, "f4") for shape in ((4, 5), (7,))] for _ in range(4))


class Item:
    """A tensor whose capsule keeps the memory, but not the item itself."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDemand:
    """A sequence that makes its items when asked, and knows which of them are alive."""

    def __init__(self, arrays):
        self.arrays, self.made = arrays, []

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, i):
        item = Item(self.arrays[i])
        self.made.append(weakref.ref(item))
        return item

    def alive(self):
        return [r() is not None for r in self.made]


class Watching(list):
    """A later list, read when the items of `before` have been: sees whether they live."""

    def __len__(self):
        self.seen = self.before.alive()
        return super().__len__()


def refused(kind, text, grad, param):
    try:
        einkorn.adamw(grad, STEP, param, FIRST, SECOND)
    except kind as e:
        assert str(e).startswith(text), e
        return
    raise AssertionError(f"not refused: {text}")


einkorn.adamw(GRAD, STEP, PARAM, FIRST, tuple(SECOND))
assert einkorn.last_kernel() == "adamw_cpu"

# An empty list is a list, None is not.
einkorn.adamw([], STEP, [], (), [])
einkorn.adamw([], STEP, [], (), [], master=[])
refused(einkorn.InvalidArgument, "adamw: grad is NULL, expected a list of tensors", None, PARAM)
refused(einkorn.InvalidArgument, "adamw: param has 0 tensors, expected 2", GRAD, [])

# Items live until the call has ended, and no longer, also when it fails.
grad, watching = OnDemand(GRAD), Watching(SECOND)
watching.before = grad
einkorn.adamw(grad, STEP, PARAM, FIRST, watching)
assert watching.seen == [True, True], watching.seen
assert grad.alive() == [False, False], grad.alive()
refused(TypeError, "adamw: param must be a NumPy array", grad, [*PARAM, 3])
assert grad.alive() == [False] * 4, grad.alive()
