# SPDX-License-Identifier: Apache-2.0
"""Cases of ops on matrices: (m, n, k) at the edges of tiles, each operand by rows or by columns, and what an error of a
product becomes in the epilogue that follows it."""

import dataclasses
import itertools

import numpy as np

from .case import Case
from .dtypes import round_to
from .functions import gelu, silu
from .spec import GROUPS, Spec, _items
from .tolerance import FAST_MATH, LEAST, TINY, UNIT, product_error, tf32_error

# (m, n, k). First sizes that fit nothing, then those whose rows are whole 16-byte vectors, which tiled rows take.
ODD = [(1, 1, 1), (7, 9, 63), (9, 65, 7), (63, 127, 129), (65, 257, 9), (127, 63, 255), (129, 129, 65), (255, 7, 1000),
       (257, 255, 17), (1000, 65, 63), (1, 1000, 257), (2, 255, 129), (65, 9, 127)]  # fmt: skip
EVEN = [(8, 8, 8), (1, 256, 256), (2, 512, 1024), (3, 1024, 512), (4, 264, 520), (6, 128, 2048), (8, 128, 128),
        (16, 256, 4096), (17, 1024, 264), (32, 72, 64), (33, 520, 128), (64, 64, 64), (64, 2048, 256), (65, 136, 72),
        (127, 128, 256), (128, 128, 128), (128, 256, 64), (129, 264, 136), (192, 384, 192), (255, 256, 256),
        (256, 256, 512), (257, 776, 1000), (300, 136, 2056), (512, 512, 512), (1000, 1000, 64)]  # fmt: skip
SHAPES = {
    "smoke": [(1, 1, 1), (7, 9, 63), (1, 256, 256), (5, 264, 136), (65, 136, 72), (128, 128, 128), (130, 264, 264)],
    "ci": [*ODD, *EVEN],
    "full": [
        *ODD, *EVEN, *itertools.product((1, 5, 8, 31, 64, 128, 200), (64, 120, 256), (64, 72, 512)),
        (700, 1536, 2048), (1024, 1024, 1024), (1030, 2048, 64), (40, 4096, 4104), (8, 6144, 4096), (1, 4096, 14336),
        (4096, 72, 520), (130, 8192, 1024), (1000, 1000, 1000), (513, 1032, 8200),
        # Several tiles one after the other in every block of a large GPU, of each kind of tile.
        (33000, 64, 64), (26331, 136, 320), (3000, 3008, 200),
    ],
}  # fmt: skip
# Sizes at which an H200 takes each tile that there is, with weights stored as linear layers have them: one tile to a block,
# several, k cut into every number of parts, and tiles cut between blocks. (tests/core/test_gemm_config.cpp sees to it that none is missing.)
TILES = [
    (72, 72, 5128), (5, 12288, 64), (13, 4104, 64), (13, 12288, 136), (30, 4104, 64), (60, 4104, 64), (60, 4104, 1096),
    (30, 18000, 64), (5, 32000, 64), (13, 32000, 64), (60, 18000, 64), (30, 28672, 64), (60, 28672, 64),
    (60, 34000, 64), (1160, 2112, 520), (2056, 2112, 520), (392, 4104, 200), (1024, 4096, 4104), (5, 34000, 520),
    (1160, 1560, 136), (60, 1032, 2056), (13, 8712, 3080), (328, 5712, 4104), (650, 1152, 2120), (648, 4680, 72),
    (200, 9624, 72), (72, 12792, 64), (72, 10680, 64), (392, 11424, 72), (392, 7248, 72), (264, 7776, 72),
    (200, 11736, 72), (904, 3600, 72), (152, 9912, 72), (328, 8568, 72), (72, 6456, 72), (392, 1152, 5128),
    (136, 4304, 520), (392, 1032, 1032), (520, 3584, 520), (392, 1544, 2056), (2056, 1544, 520), (72, 28000, 520),
    (520, 4304, 1032), (152, 3912, 3176), (136, 2120, 10248), (840, 840, 10248), (72, 3672, 10248), (72, 2664, 5128),
    (136, 888, 6152), (1160, 120, 10248), (136, 648, 3592), (72, 72, 2568), (72, 72, 7176), (72, 72, 10248),
    (136, 936, 7176), (136, 744, 6152), (1160, 72, 3080), (776, 72, 6152),
    (5, 1024, 4096), (13, 1024, 4096), (30, 1024, 4096), (152, 7776, 72), (264, 8472, 72), (264, 11280, 72),
    (1288, 1296, 72), (1544, 1560, 72), (584, 3384, 72), (3, 1032, 4104), (4, 6136, 1608), (7, 12600, 200), (8, 8184, 1608),
    (3, 10232, 1608), (3, 18952, 1032), (7, 4120, 2056), (3, 6808, 1608),
    (7, 264, 520),
    (5, 104, 832), (5, 104, 64), (13, 104, 448), (30, 104, 960), (20, 104, 960), (13, 104, 64), (30, 104, 64), (60, 104, 448), (60, 104, 64), (100, 104, 448),
    (5, 104, 1088), (5, 104, 1344), (5, 104, 1600), (5, 104, 1856), (5, 104, 2112),
    (5, 9192, 832), (5, 2664, 3776), (5, 15080, 576), (5, 1384, 4544), (13, 9192, 704), (13, 6248, 1472), (13, 13608, 448), (13, 1384, 4544), (30, 9192, 704),
    (30, 744, 6336), (30, 13608, 448), (60, 1704, 1216), (60, 4776, 1088), (60, 424, 8128), (100, 104, 8256), (5, 520, 8256), (5, 25384, 64), (5, 6248, 5824),
    (5, 1040, 12992), (5, 7280, 1856), (5, 10088, 1344), (5, 6032, 2240), (5, 1872, 7232), (13, 1872, 7232), (13, 3640, 3712), (13, 7592, 1792),
    (13, 21112, 640), (30, 8840, 1536), (30, 3640, 3712), (30, 7280, 1856), (60, 3640, 3712), (60, 2184, 6208), (60, 10088, 1344), (60, 1976, 6848),
    (100, 1040, 12992),
]  # fmt: skip
# And at which blocks go on to a second tile: warpgroups in turns, a tile by rows, turned ones by rows and by columns, the
# largest, turned ones in turns and alone, and to a third: wide ones in turns.
WAVES = [
    (2312, 1656, 264), (456, 12792, 72), (2568, 2736, 72), (2056, 4808, 72), (1160, 6408, 72), (264, 17808, 72), (264, 13608, 72),
    (392, 17064, 2056),
]  # fmt: skip
# The least sizes of each kind of kernel, which is what a sanitizer has time for. One warpgroup, k cut by a cluster, the same in
# several chunks, two in turns, tiles by rows, by columns, turned ones with chunks that overlap, by rows and in turns, clusters of
# eight, wide ones in turns; few rows: k cut, streamed, in turns, pairs that share b; up to 8 by mma.sync, two and three blocks an
# SM, which go round their rings and on to further columns; up to 64 in narrow tiles, k cut and whole, rings that go round, 100 in halves, and fewer columns.
SOME_TILES = [
    (72, 72, 200), (72, 72, 5128), (1160, 72, 3080), (1160, 1560, 136), (72, 10840, 64), (392, 11424, 72), (392, 4248, 72), (1288, 1296, 72),
    (200, 3808, 136), (328, 5712, 4104), (8, 72, 520), (5, 16904, 64), (13, 8456, 64), (30, 16904, 64), (60, 8456, 64), (60, 1032, 1032), (40, 3144, 1032),
    (3, 72, 4104), (7, 18952, 520), (5, 104, 832), (30, 104, 64), (20, 104, 960), (100, 104, 448), (13, 72, 24576),
    (5, 7280, 1856), (13, 1872, 7232), (60, 3640, 3712),
]  # fmt: skip
# Sizes, and what follows the product, for results that the copy engine stores, with c beside them (`boxes` of a spec): tiles whose
# last one both warpgroups end, of blocks with one, two and three; those that only a constant b gets; chunks of c that come to
# the ring; chunks that overlap. The sanitizers have time for the first ones. (tests/core/test_gemm_config.cpp sees to it that they are these.)
ADDED, FUSED, CONSTANT = {}, {"act": "gelu_tanh"}, {"act": "gelu_tanh", "constant_b": True}
FEW_BOXES = [
    ((2632, 648, 136), FUSED), ((904, 3848, 1544), ADDED), ((72, 6408, 72), CONSTANT), ((648, 5384, 72), FUSED),
    ((200, 6408, 64), FUSED),
]  # fmt: skip
BOXES = [
    *FEW_BOXES, ((72, 6408, 64), FUSED), ((200, 3592, 200), FUSED), ((328, 5640, 2056), ADDED), ((456, 6664, 64), FUSED),
    ((648, 5384, 2056), FUSED), ((648, 7176, 2056), FUSED), ((72, 13832, 1288), CONSTANT), ((328, 7176, 1288), CONSTANT),
    ((648, 7176, 2056), ADDED), ((776, 8456, 2056), ADDED), ((72, 2824, 136), CONSTANT), ((72, 4360, 72), CONSTANT),
    ((72, 8456, 72), CONSTANT),
]  # fmt: skip
PADDED_SEED = 1  # of cases whose lines are padded, see GAPS in run.py
# Sizes off every vector and tile, in lines that begin at whole vectors: tiled rows take those too.
UNEVEN = [*ODD, (130, 257, 1001), (300, 1023, 519), (8, 1025, 2051), (40, 771, 1029), (520, 3583, 517)]
# Probes, with weights stored as linear layers have them: few rows of a; few tiles and a long k, with nothing fused.
PROBES = [
    {"n": (4, 1024, 1024), "strides": "columns:b"}, {"n": (72, 72, 5128), "strides": "columns:b", "presence": ()},
]  # fmt: skip
OTHERS = [(392, 1152, 264), (392, 4104, 200), (392, 4232, 72)]  # the same for the other layouts
# Tiles that store some columns twice.
OVERLAPPING = [
    (904, 3592, 72), (840, 3600, 72), (1928, 2312, 72), (1928, 1560, 72), (328, 5712, 4104), (136, 6120, 72), (200, 6408, 72), (392, 4248, 72),
    (584, 3384, 72), (1288, 1296, 72), (152, 9912, 72), (264, 8472, 72),
]  # fmt: skip
FEW = {"smoke": 2, "ci": 5, "full": 15}  # shapes for what goes over layouts too
# f32: as many tiles of 128 x 128 as an H200 has SMs, cut at every edge.
LARGE_TILES = (388, 4236, 76)


class MatrixSpec(Spec):
    """dims(m, n, k, a, i): the op's dims for a product of that size. layouts: sets of tensors that are stored by columns.
    empties: dims that leave nothing to compute, or nothing to add up. batch: 1 if matrices have a batch dim in front.
    shared: its inputs, each of which is one for all of a batch in some cases. tiles: variants that go over the sizes of
    TILES and WAVES, in the first layout. boxes: whether those of BOXES are for it."""

    groups = (*GROUPS, "layouts", "uneven", "tiles", "waves")

    def __init__(self, op, reference, *, matrix_dims, layouts, empties=(), shapes=None, batch=0, shared=(), tiles=(),
                 boxes=False, **rest):  # fmt: skip
        self.matrix_dims, self.layouts, self.empties, self.batch = matrix_dims, layouts, empties, batch
        self.tiles, self.shared, self.boxes = tiles, shared, boxes
        self.shapes = shapes or SHAPES
        super().__init__(op, reference, dims=self._any_dims, sizes=self.shapes, **rest)

    def batch_dims(self, tensor):
        return self.batch if len(tensor.dims) > 2 else 0

    def _any_dims(self, size, a, i):
        """size: (m, n, k), or one number, as tests of all ops give: a product that wide, with k enough to be cut."""
        if not isinstance(size, tuple):
            n = min(size, 1024)
            size = (48 if n >= 64 else 5, n, min(8 * n, 1024))
        return self.matrix_dims(*size, a, i)

    def _shapes(self, dtypes, level, seed):
        for i, size in enumerate(self.shapes[level]):
            yield self.case(dtypes, size, i)

    def _options(self, dtypes, level, seed):
        for size in [(5, 16, 24), (65, 136, 72)][: 1 if level == "smoke" else 2]:
            for variant in self.variants:
                choices = self.presences(variant, self.dims(size, variant, 0))
                for i, presence in enumerate(choices if size[0] < 9 else choices[:2]):
                    yield self.case(dtypes, size, i, (), variant, presence)

    def _misaligned(self, dtypes, level, seed):
        sizes = [(9, 16, 24), (65, 129, 40), (64, 128, 256), (128, 256, 64)]
        for shift in self.shifts(dtypes):
            for i, size in enumerate(sizes[: 2 if level == "smoke" else 4]):
                yield self.case(dtypes, size, i, shift=shift)
        # Each tensor alone, the others where tiled rows want them.
        sizes, bf16 = [(65, 136, 72), (5, 72, 64)], {d for _, d in dtypes} == {"bf16"}
        if level == "smoke":
            sizes = sizes[:bf16]
        elif level == "full" and self.tiles and bf16:
            sizes += [(200, 3808, 136), (72, 10840, 64)]  # turned and not, at their edges
        strides = "columns:" + ",".join(self.layouts[0])
        for size, i, shift in itertools.product(sizes, (1, 2), (self.shifts(dtypes)[0], 8)):
            case = self.case(dtypes, size, i, strides=strides, shift=shift)
            for t in self.schema.tensors:
                if not t.optional or t.name in case.present:
                    yield dataclasses.replace(case, moved=t.name)

    def _inplace(self, dtypes, level, seed):
        for variant, size in itertools.product(self.variants, [(9, 7, 12), (64, 136, 72)]):
            for presence in self.presences(variant, self.dims(size, variant, 0))[: 1 if level == "smoke" else 2]:
                for alias in self.alias_sets(self.case(dtypes, size, 0, (), variant, presence)):
                    yield self.case(dtypes, size, 0, (), variant, presence, alias=alias)
                    yield self.case(dtypes, size, 1, (), variant, presence, alias=alias, strides="random")
        for variant, size in itertools.product(self.tiles, OVERLAPPING if level == "full" else ()):
            for presence in self.presences(variant, self.dims(size, variant, 0))[:1]:
                for alias in self.alias_sets(self.case(dtypes, size, 0, (), variant, presence)):
                    strides = "columns:" + ",".join(self.layouts[0])
                    yield self.case(dtypes, size, 0, (), variant, presence, alias=alias, strides=strides)

    def _special(self, dtypes, level, seed):
        for i, size in enumerate([(20, 64, 40), (130, 128, 128), (9, 7, 33)][: 1 if level == "smoke" else 3]):
            for j, variant in enumerate(self.variants):
                case = self.case(dtypes, size, i + j, (), variant, fill="special")
                yield self.with_batch(case, len(self.special) + 2) if self.batch else case

    def _layouts(self, dtypes, level, seed):
        """Every layout, at sizes that take turns."""
        sizes = self.shapes["smoke"][1:] if level == "smoke" else self.shapes["ci"]
        step = max(len(sizes) // FEW[level], 1)
        for j, layout in enumerate(self.layouts):
            for i, size in enumerate(sizes[j % step :: step][: FEW[level]]):
                yield self.case(dtypes, size, i + j, strides="columns:" + ",".join(layout))
            if j < 4 and {d for _, d in dtypes} == {"f32"}:  # those of a and b
                yield self.case(dtypes, LARGE_TILES, j, strides="columns:" + ",".join(layout))

    def _uneven(self, dtypes, level, seed):
        """Sizes that end within a vector, where tiles still take them: in all layouts of a and b, and beside those of TILES."""
        strides = ["columns:" + ",".join(layout) for layout in self.layouts[:4]]
        sizes = [(7, 9, 63), (65, 137, 71), (130, 257, 203)] if level == "smoke" else UNEVEN
        for (i, size), (j, layout) in itertools.product(enumerate(sizes), enumerate(strides)):
            if level == "full" or (i + j) % 4 == 0:
                yield self.case(dtypes, size, i + j, strides=layout, seed=4 * (i + j) + PADDED_SEED)
        if level == "full" and self.tiles and {d for _, d in dtypes} == {"bf16"}:
            for i, (m, n, k) in enumerate(TILES):
                size = (m - i % 3, n - (1, 3, 7)[i % 3], k - (1, 5, 0, 7)[i % 4])
                variant = self.tiles[i % len(self.tiles)]
                yield self.case(dtypes, size, i, (), variant, strides=strides[0], seed=PADDED_SEED)

    def _tiles(self, dtypes, level, seed):
        # They are kernels of 16 bits; f16 and bf16 differ in one instruction.
        kinds = {d for _, d in dtypes}
        step = 1 if kinds == {"bf16"} else 4 if kinds == {"f16"} else len(TILES)
        few = SOME_TILES if (level, step) == ("smoke", 1) else TILES[:1]
        sizes = [(size, self.layouts[0]) for size in (TILES[::step] if level == "full" else few)]
        if level == "full" and step == 1:
            sizes += [(size, layout) for size in OTHERS for layout in self.layouts[1:]]
        for i, (size, layout) in enumerate(sizes):
            for variant in self.tiles if level != "smoke" else self.tiles[:1]:
                yield self.case(dtypes, size, i, (), variant, strides="columns:" + ",".join(layout), seed=0)
        if (level, step) == ("smoke", 1):
            yield from self._boxes(dtypes, FEW_BOXES)

    def _boxes(self, dtypes, sizes):
        """With all that can be added."""
        for size, variant in sizes if self.boxes else ():
            yield self.case(dtypes, size, 0, (), variant, strides="columns:" + ",".join(self.layouts[0]), seed=0)

    def _waves(self, dtypes, level, seed):
        if level == "full" and self.tiles and {d for _, d in dtypes} == {"bf16"}:
            for i, size in enumerate(WAVES):
                variant, strides = self.tiles[i % len(self.tiles)], "columns:" + ",".join(self.layouts[0])
                yield self.case(dtypes, size, i, (), variant, strides=strides, seed=0)
            yield from self._boxes(dtypes, BOXES)

    def wants(self, group, row, level):
        """Where sizes are for the rows that have tiles of many kinds, and time is short, those alone."""
        return "sm90" in row or not (group == "waves" or (group, level) == ("tiles", "smoke"))

    def _strided(self, dtypes, level, seed):
        for i, size in enumerate(self.shapes["ci"][1 : 20 if level == "full" else 8]):
            yield self.case(dtypes, size, i, strides="random", seed=100 + i)

    def _broadcast(self, dtypes, level, seed):
        sizes = self.shapes["smoke"] if self.batch else []
        for i, size in enumerate(sizes):
            yield self.case(dtypes, size, i, strides="broadcast", seed=200 + i)
        # One matrix for all products, the others each with its own. From the third on rows are whole vectors.
        whole = sizes[2:] if level != "smoke" else sizes[-1:]
        for (i, size), shared, layout in itertools.product(enumerate(whole), self.shared, self.layouts[:2]):
            case = self.case(dtypes, size, i, (), self.variants[1], strides=f"columns:{','.join(layout)}:{shared}")
            yield self.with_batch(case, 3)

    def _empty(self, dtypes, level, seed):
        for i, change in enumerate(self.empties):
            for variant in self.variants:
                dims = {**self.dims((9, 16, 8), variant, i), **change}
                for presence in self.presences(variant, dims)[:2]:
                    yield Case(self.op, dtypes, (), _items(dims), _items(variant), presence, seed=i)

    def random_case(self, dtypes, rng, seed):
        def side(most):
            n = int(np.exp(rng.uniform(0, np.log(most))))
            return n if rng.random() < 0.4 else (n + 7) // 8 * 8

        attrs, i = self.variants[rng.integers(len(self.variants))], int(rng.integers(8))
        dims = self.dims((side(300), side(600), side(1500)), attrs, i)
        choices = self.presences(attrs, dims)
        layout = self.layouts[rng.integers(len(self.layouts))]
        strides = str(rng.choice(["dense", "random", "columns:" + ",".join(layout)], p=[0.2, 0.2, 0.6]))
        case = Case(
            self.op, dtypes, (), _items(dims), _items(attrs), choices[rng.integers(len(choices))], strides=strides,
            shift=int(rng.choice([0, 0, 0, 0, 0, 2, 4, 8, 16])), seed=seed,
        )  # fmt: skip
        aliases = self.alias_sets(case)
        if aliases and rng.random() < 0.25:
            case = Case(**{**case.__dict__, "alias": aliases[rng.integers(len(aliases))]})
        return case


# ---- references: a value, and how far f32 arithmetic may be from it -----------------------------------------------------


class Value:
    """A float64 array with the error that a row may have made so far, without and with TF32."""

    def __init__(self, value, error, tf32):
        self.value, self.error, self.tf32 = value, error, tf32

    def map(self, value, carry):
        """value, with carry(error) for both errors."""
        return Value(value, carry(self.error), carry(self.tf32))


def product(a, b, alpha=1.0, plus=(), a_error=(0.0, 0.0)):
    """alpha * a b + the sum of plus (None: absent). a_error: of a, without and with TF32."""
    plus = [x for x in plus if x is not None]
    value = alpha * (a @ b) + sum(plus)
    size = np.abs(alpha) * (np.abs(a) @ np.abs(b))
    terms = size + sum(np.abs(x) for x in plus)
    # f32 below its normal range: either factor of a product, or the product, may become 0.
    lost = LEAST * np.abs(alpha) * (np.abs(a).sum(-1)[..., None] + np.abs(b).sum(-2)[..., None, :])
    error = product_error(terms, a.shape[-1]) + lost
    before = [np.abs(alpha) * (e @ np.abs(b)) if isinstance(e, np.ndarray) else 0.0 for e in a_error]
    return Value(value, error + before[0], error + before[1] + tf32_error(size))


ACTIVATIONS = {
    "none": lambda x: x,
    "silu": silu,
    "gelu_erf": lambda x: gelu(x, "erf"),
    "gelu_tanh": lambda x: gelu(x, "tanh"),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}
SLOPE = 1.13  # the most of silu, 1.1, and gelu, 1.129


def activate(z, act, lean):
    """act(z). lean: CUDA rows take exp, tanh and erf from approximations for this dtype."""
    f, x = ACTIVATIONS[act](z.value), np.abs(z.value)
    if act in ("none", "relu"):
        return z.map(f, lambda e: e)
    if act == "relu2":
        return z.map(f, lambda e: (2 * x + e) * e + 2 * UNIT["f32"] * f)
    # 1 + erf cancels for negative x, and exp turns an error of x into one of |x|: hence x, not f, for f32's own part.
    own = 8 * UNIT["f32"] * x + (FAST_MATH * np.abs(f) if lean else 0) + LEAST * x
    return z.map(f, lambda e: SLOPE * e + own)


def gate(z, act, lean):
    """act(gate) * up of columns that alternate."""
    g = activate(Value(z.value[..., 0::2], z.error[..., 0::2], z.tf32[..., 0::2]), act, lean)
    up, size = z.value[..., 1::2], np.abs(z.value[..., 1::2])

    def error(own, of_up):
        e = own * size + np.abs(g.value) * of_up + own * of_up
        return e + UNIT["f32"] * np.abs(g.value * up)

    return Value(g.value * up, error(g.error, z.error[..., 1::2]), error(g.tf32, z.tf32[..., 1::2]))


def rounded(h, dtype):
    """h as it reads after being stored: the nearest value, and how far from that the nearest to h +- error can be."""
    value = round_to(h.value, dtype)

    def spread(error):
        with np.errstate(invalid="ignore"):
            low, high = round_to(h.value - error, dtype), round_to(h.value + error, dtype)
            return np.nan_to_num(np.maximum(high - value, value - low)) + TINY[dtype]

    return h.map(value, spread)
