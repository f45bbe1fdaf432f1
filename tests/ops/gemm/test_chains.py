# SPDX-License-Identifier: Apache-2.0
"""Products that need the one before, with overlapping launches (PDL): each may begin before that one has ended, and must not
read its result, or write over what it still reads, too early. x is another one at every replay, so that a value from the
replay before is seen. The bits are those of the same chain without PDL."""

import einkorn
import numpy as np
import pytest
from harness import AUTO, rows
from harness.dtypes import ITEMSIZE, encode
from harness.memory import Arena

SHARDS = 5  # processes of tools/gpu-check

# (m, first, second): results go from one width to the other and back. The third of few rows: rings that are filled again, and
# blocks that go on to further columns, beside the next kernel's. The last four: k is cut between the blocks of a
# cluster; tiles are streamed, whose pieces meet in the workspace that all calls share; and plans that let the next kernel in
# late, of whole tiles and of few rows with k cut. Of narrow tiles: rings that are filled again and plans that come late, and halves.
SIZES = [(1, 1024, 1024), (8, 1024, 2048), (4, 1160, 12600), (16, 1024, 4096), (64, 1024, 1024), (200, 512, 1024),
         (8, 4096, 6144), (64, 4096, 6144), (128, 1024, 1024),
         (72, 72, 6152), (13, 8712, 3080), (392, 1152, 5128), (13, 264, 80008)]  # fmt: skip
STEPS, BUFFERS, INPUTS = 8, 4, 8  # a chain writes each buffer twice
REPLAYS = {"ci": 40, "full": 80}
DTYPES = ("bf16", "f16", "f32")
PERIOD = 1000003  # weights, repeated: no two columns are the same


class Memory:
    """x at its start, then buffers for results, then the weights of both directions, as layers store them."""

    def __init__(self, context, device, size, dtype):
        self.context, self.dtype = context, dtype
        self.m, self.first, self.second = size
        rng, bytes_ = np.random.default_rng(1), ITEMSIZE[dtype]
        self.part, whole = (
            -(-n * bytes_ // 256) * 256 for n in (self.m * max(size), max(self.first * self.second, self.m**2))
        )
        self.weights_at = [self.part * (1 + BUFFERS) + i * whole for i in range(2)]
        blocks = [np.full(self.weights_at[0], 0xFF, np.uint8)]
        for k in (self.first, self.second):
            raw = encode(rng.standard_normal(PERIOD) / k**0.5, dtype).view(np.uint8)
            blocks.append(np.resize(raw, whole))
        block = np.concatenate(blocks)
        self.arena = Arena(device, block.nbytes, context)
        self.arena.upload(block)
        self.context.synchronize()

    def weights(self, k, n):
        """[k, n], stored [n, k]."""
        return self.arena.array.view((k, n), (1, k), self.weights_at[k != self.first], self.dtype)

    def result(self, step, width):
        """Of a step; step -1 is x."""
        at = self.part * (1 + step % BUFFERS) if step >= 0 else 0
        return self.arena.array.view((self.m, width), (width, 1), at, self.dtype)


# Each gives the op and the arguments of a step.


def link_a(mem, i):
    k, n = (mem.first, mem.second) if i % 2 == 0 else (mem.second, mem.first)
    return "gemm", {"a": mem.result(i - 1, k), "b": mem.weights(k, n), "d": mem.result(i, n), "constant_b": True}


def link_weights(mem, i):
    """The same, but nobody has said that the weights are constant."""
    op, args = link_a(mem, i)
    return op, args | {"constant_b": False}


def link_c(mem, i):
    k, n = mem.second, mem.first
    c = {"c": mem.result(i - 1, n), "beta": 0.5} if i else {}
    return "gemm", {"a": mem.result(-1, k), "b": mem.weights(k, n), "d": mem.result(i, n), "constant_b": True, **c}


def link_b(mem, i):
    """The result as b, which is then not constant."""
    m = mem.m
    a = mem.arena.array.view((m, m), (m, 1), mem.weights_at[0], mem.dtype)
    b = mem.result(i - 1, m).view((m, m), (1, m))
    alpha = (mem.first / m) ** 0.5  # the weights are scaled for another k
    return "gemm", {"a": a, "b": b, "d": mem.result(i, m), "alpha": alpha}


def link_residual(mem, i):
    _, args = link_a(mem, i)
    args = {"a": args["a"], "b": args["b"], "y": args["d"], "act": "gelu_tanh", "constant_b": True}
    # The one before the last: the last is of another width.
    return "gemm_epilogue", args | ({"residual": mem.result(i - 2, args["y"].shape[1])} if i else {})


def link_mlp(mem, i):
    w = {"w1": mem.weights(mem.first, mem.second), "w2": mem.weights(mem.second, mem.first)}
    x, y = mem.result(i - 1, mem.first), mem.result(i, mem.first)
    return "mlp", {"x": x, **w, "residual": x, "y": y}


LINKS = {"a": link_a, "weights": link_weights, "c": link_c, "b": link_b, "residual": link_residual, "mlp": link_mlp}
# What no call of a chain is for: k is too short to be cut; an epilogue is not left to a library.
NEVER = {"b": ("gemm_sm90_split",), "residual": ("gemm_epilogue_cublaslt",)}


class Chain:
    """The calls of a chain on one row, where it takes them; else on the one that is selected."""

    def __init__(self, link, mem, row):
        self.mem, self.context = mem, mem.context
        self.calls = [link(mem, i) for i in range(STEPS)]
        self.forced = [row if row != AUTO and self.takes(row, op, args) else None for op, args in self.calls]
        self.context.synchronize()
        last = self.calls[-1][1]
        self.end = last["y"] if "y" in last else last["d"]

    def takes(self, row, op, args):
        self.context.force(op, row)
        try:
            getattr(einkorn, op)(**args, ctx=self.context)  # also grows the workspace, which a capture can't
        except einkorn.Error as e:
            assert e.status == "unsupported", e
            rows.refused(row, str(e).partition("refuses: ")[2])
            return False
        finally:
            self.context.force(op, None)
        rows.ran(row)
        return True

    def run(self):
        for (op, args), row in zip(self.calls, self.forced, strict=True):
            self.context.force(op, row)
            getattr(einkorn, op)(**args, ctx=self.context)
            self.context.force(op, None)

    def capture(self):
        self.run()  # of the selected rows too the workspace must be there
        self.context.synchronize()
        with self.context.capture() as graph:
            self.run()
        return graph

    def bits(self, x, graph):
        arena, end = self.mem.arena, self.end
        arena.upload(x)
        graph.replay()
        return arena.download(end.shape[0] * end.shape[1] * ITEMSIZE[end.dtype], end.pointer - arena.array.pointer)


@pytest.mark.parametrize("name", LINKS)
def test_chain_with_overlapping_launches(cuda, level, name):
    if level == "smoke":
        pytest.skip("a sanitizer lets no launches overlap")
    link = LINKS[name]
    contexts = [einkorn.Context(cuda, flags=f, stream=einkorn.Stream(cuda)) for f in (("tf32",), ("tf32", "pdl"))]
    op = {"residual": "gemm_epilogue", "mlp": "mlp"}.get(name, "gemm")
    waiting = [*(k.name for k in rows.usable(op, cuda) if k.name not in NEVER.get(name, ())), AUTO]
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        took = set()
        for size in SIZES:
            plain, overlapping = (Memory(context, cuda, size, dtype) for context in contexts)
            elements = size[0] * max(size)
            xs = [encode(rng.standard_normal(elements), dtype).view(np.uint8) for _ in range(INPUTS)]
            for row in waiting:
                first, second = Chain(link, plain, row), Chain(link, overlapping, row)
                assert first.forced == second.forced, f"{row} takes a call or not, as PDL is on or off"
                if row != AUTO and not any(first.forced):
                    continue
                took.add(row)
                graph, other = first.capture(), second.capture()
                want = [first.bits(x, graph) for x in xs]
                assert not np.array_equal(want[0], want[1]), "the end of the chain does not depend on x"
                for i in range(REPLAYS[level]):
                    got = second.bits(xs[i % INPUTS], other)
                    assert np.array_equal(got, want[i % INPUTS]), f"{name}, {row}, {size}, {dtype}: replay {i} differs"
        waiting = [row for row in waiting if row not in took]  # another dtype for those that are for that
        if not waiting:
            break
    untested = [f"{row} ({'; '.join(rows.refusals(row))})" for row in waiting if not rows.lacks_library(row)]
    assert not untested, f"refused every call: {', '.join(untested)}"
