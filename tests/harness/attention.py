# SPDX-License-Identifier: Apache-2.0
"""Cases of attention: lengths and page tables that fit together, every mask with every other, and the float64 reference
with what f32 arithmetic and a rounded P may be off by. What no query sees is NaN, in K, V and their scales, and the
page table has numbers there that are no pages."""

import dataclasses
import itertools

import numpy as np

from .case import Case
from .memory import strided
from .spec import SAME_LAYOUT, Spec, _items
from .tolerance import F32, FAST_MATH, LEAST, UNIT, Expected, product_error

GARBAGE = 2**30  # in a page table, where nothing may look

MASKS = [
    {}, {"causal": True}, {"window_left": 5}, {"window_right": 3}, {"window_left": 9, "window_right": 0},
    {"causal": True, "window_left": 7}, {"causal": True, "window_left": 0}, {"causal": True, "window_right": 2},
    {"window_left": 2**31 - 1, "window_right": 1}, {"causal": True, "window_left": 2**31 - 3, "window_right": 2**31 - 1},
]  # fmt: skip
SCORES = [{}, {"softcap": 5.0}, {"scale": 0.3}, {"softcap": 30.0, "scale": 0.05}]
HEADS = [(4, 2), (3, 3), (8, 1), (6, 2), (1, 1), (16, 4)]  # heads, kv_heads
# head_dim, v_dim. The first ones are 32 to 256 in steps of 8 by samples, then d_qk != d_v, then what fits nothing.
DIMS = [(64, 64), (128, 128), (32, 32), (40, 40), (72, 72), (80, 80), (96, 96), (120, 120), (136, 136), (160, 160),
        (184, 184), (192, 192), (216, 216), (248, 248), (256, 256), (512, 512), (192, 128), (128, 64), (64, 256),
        (1, 1), (7, 9), (33, 65), (130, 514)]  # fmt: skip
LENGTHS = [(1, 1), (1, 17), (3, 2), (5, 64), (17, 33), (64, 65), (33, 1), (65, 130), (130, 129), (7, 300), (128, 128),
           (200, 63), (1, 1000), (257, 257)]  # fmt: skip  # queries, keys
# Heads, kv_heads and queries (decoding, 1 to 8 of them): rows of a kv head that are more than the 16, 64 and 128 of tiles, also of
# one query alone, and of a ratio that divides none of these.
RATIOS = [((32, 1), 8), ((16, 1), 21), ((20, 4), 37), ((32, 1), 3), ((64, 2), 7), ((136, 1), 1), ((72, 1), 2)]
# Heads, kv_heads, queries and keys of combinations: few rows and many, by turns.
COMBINED = {
    "attention": [((2, 1), 24, 150), ((2, 1), 180, 230), ((2, 2), 24, 150), ((1, 1), 200, 150)],
    "attention_decode": [((2, 1), 2, 150), ((8, 1), 2, 150), ((2, 2), 1, 150), ((8, 2), 4, 150), ((1, 1), 3, 150),
                         ((16, 1), 1, 150)],
}  # fmt: skip
PAGE_SIZES = [16, 1, 64, 7, 3, 256, 32]  # as many as meet every mode, mask, pair of heads and width
# Queries, keys and a mask that leave whole tiles of 16 to 128 keys between those that need a look at every element, or
# end at the edge of one.
TILED = [
    (64, 192, {}), (128, 128, {"causal": True}), (129, 320, {"causal": True, "window_left": 150}),
    (200, 450, {"window_left": 130, "window_right": 90}), (100, 400, {"causal": True}), (63, 65, {"window_right": 64}),
    (300, 300, {"causal": True, "window_left": 63}), (257, 130, {"causal": True}), (127, 512, {"window_left": 256}),
    (65, 257, {"causal": True, "window_left": 192}), (192, 384, {"window_right": 128}), (33, 449, {"softcap": 20.0}),
]  # fmt: skip
REPLAYED = ("any", "full", "one", "any")  # lengths, from one replay of a graph to the next


def combinations(window_right):
    """(attributes, optional tensors): every mask, score and option with every other, as far as the schema has them."""
    orders = [({"causal": False}, ()), ({"causal": True}, ()), ({"causal": True}, ("prefix_len",))]
    left, right = {"window_left": 90}, {"window_right": window_right}
    windows, caps = [{}, left, right, left | right], [{}, {"softcap": 6.0, "scale": 0.2}]
    names = ("sinks", "alibi", "lse")
    options = [s for n in range(4) for s in itertools.combinations(names, n)]
    for (order, prefix), window, cap, some in itertools.product(orders, windows, caps, options):
        yield order | window | cap, (*prefix, *some)


class AttentionSpec(Spec):
    """modes: how K and V, and the tokens of q, are given; make(...) makes a case of one. layouts: the same, those together
    that have K and V alike: a page for each sequence, packed, paged. replays: keywords of make(); all have lengths, which
    change from one replay of a graph to the next."""

    groups = (
        "shapes",
        "widths",
        "masks",
        "combined",
        "options",
        "lengths",
        "paged",
        "tiles",
        "ratios",
        "many",
        "strided",
        "misaligned",
        "special",
        "empty",
        "fuzz",
    )

    def __init__(self, op, *, modes, layouts, generic, queries, **rest):
        super().__init__(op, reference, variants=VARIANTS, inputs=draw, special=("nan", "zero", "denormal"), **rest)
        self.modes, self.layouts, self.generic, self.queries = modes, layouts, generic, queries

    def values(self, case):
        """As in C: a dim that only absent tensors have is 0."""
        absent = dict.fromkeys((d for d in self.schema.free_dims if d not in dict(case.dims)), 0)
        rows = int(np.prod(case.lead, dtype=np.int64))
        lead = {"rows": rows, "last_lead": case.lead[-1] if case.lead else 1}
        given = {**absent, **dict(case.dtypes), **dict(case.dims), **lead, **self.attributes(case.attrs)}
        return self.schema.derive(given | {"scales": self.scales(case), "lengths": case.lengths}, case.present)

    def scales(self, case):
        """What an 8-bit cache has one scale for: a token and head (i8, mostly), a head, or all of it."""
        kinds = ("token", "token", "head", "all") if dict(case.dtypes).get("K") == "i8" else ("head", "all", "token")
        return kinds[case.seed // 2 % len(kinds)]

    def strides(self, case, name, shape):
        """Scales that several tokens share. Every other dense cache has its heads outside (HND)."""
        if name in ("k_scale", "v_scale") and self.scales(case) != "token":
            return (0, 0, int(self.scales(case) == "head"))
        if name in ("k", "v") and case.strides == "dense" and case.seed % 2:
            _, size, heads, dim = shape
            return (size * heads * dim, dim, size * dim, 1)
        if name in ("q", "k", "v", "y") and case.strides == "random" and case.seed % 2:
            rng = np.random.default_rng([case.seed, ord(name)])
            return strided(shape, False, rng, gaps=(0, 8, 16, 64))  # 16-byte rows stay aligned
        return None

    def case(self, dtypes, n, i, lead=None, variant=None, presence=None, **rest):
        """For tests of all ops: a case whose batch can be changed alone. keys: more of them than n can ask for."""
        attrs = self.variants[i % len(self.variants)] if variant is None else variant
        lead = (5,) if lead is None else lead
        dims, present = self.generic(rest.pop("keys", None) or min(max(n, 1), 512), attrs, lead)
        present = presence if presence is not None else present
        lead = lead if self.schema.has_lead else ()
        return Case(
            self.op, dtypes, tuple(lead), _items(dims), _items(attrs), present, seed=rest.pop("seed", i), **rest
        )

    def replays(self, dtypes):
        # Seeds that let kinds of scales, and the order of tokens and heads, take turns
        return [self.make(dtypes, i, seed=2 * i + i % 2, **replay) for i, replay in enumerate(self._replays)]

    def changed(self, case):
        """Other lengths, and pages in another order."""
        return [
            dataclasses.replace(case, seed=case.seed + SAME_LAYOUT * s, lengths=lengths)
            for s, lengths in enumerate(REPLAYED)
        ]

    def make(self, dtypes, i, *, mode=None, q_len=None, kv_len=None, heads=None, dims=None, attrs=None, extras=None,
             page_size=None, batch=None, **rest):  # fmt: skip
        """A case; what is not said takes turns by i."""
        mode = mode or self.modes[i % len(self.modes)]
        length = LENGTHS[i % len(LENGTHS)]
        q_len, kv_len = length[0] if q_len is None else q_len, length[1] if kv_len is None else kv_len
        heads, kv_heads = heads or HEADS[i % len(HEADS)]
        head_dim, v_dim = dims or DIMS[(i * 5) % 16]
        attrs = MASKS[i % len(MASKS)] | SCORES[i // 3 % len(SCORES)] if attrs is None else attrs
        extras = self.extras(i, attrs) if extras is None else extras
        rest.setdefault("seed", i)
        page_size = page_size or PAGE_SIZES[i % len(PAGE_SIZES)]
        shared = {"heads": heads, "head_dim": head_dim, "kv_heads": kv_heads, "v_dim": v_dim}
        if attrs.get("causal") is None and self.op == "attention_decode":
            attrs = {**attrs, "causal": False}
        if not attrs.get("causal"):
            extras = tuple(e for e in extras if e != "prefix_len")
        lead, own, present = mode(self.queries(q_len), kv_len, 3 if batch is None else batch, page_size)
        if "prefix_len" in extras and self.op == "attention":
            own.setdefault("seqs", own["cu_len"] - 1 if "cu_len" in own else own["pages"])
        scales = ("k_scale", "v_scale") if dict(dtypes).get("K") in ("e4m3", "i8") else ()
        # Either may be absent, or both: 1
        scales = () if i % 11 == 4 else {3: scales[:1], 5: scales[1:]}.get((i + i // 7) % 7, scales)
        present = tuple(t.name for t in self.schema.tensors if t.name in {*present, *extras, *scales})
        return Case(self.op, dtypes, lead, _items({**shared, **own}), _items(attrs), present, **rest)

    def extras(self, i, attrs):
        sets = [
            ("lse",),
            ("sinks", "lse"),
            (),
            ("alibi", "lse"),
            ("prefix_len", "lse"),
            ("prefix_len", "sinks", "alibi", "lse"),
        ]
        return sets[i % len(sets)]

    # ---- groups ---------------------------------------------------------------------------------------------------------

    def _some(self, level, items):
        return items[:: {"smoke": 4, "ci": 1, "full": 1}[level]]

    def _shapes(self, dtypes, level, seed):
        for i, (q_len, kv_len) in self._some(level, list(enumerate(LENGTHS))):
            yield self.make(dtypes, i, q_len=q_len, kv_len=kv_len, dims=DIMS[i % 2])
        if level == "full":
            for i, (q_len, kv_len) in enumerate([(1024, 1024), (1, 8192), (500, 2000), (1500, 100)]):
                yield self.make(dtypes, i, q_len=q_len, kv_len=kv_len, attrs=MASKS[i % 2], batch=2)

    def _widths(self, dtypes, level, seed):
        for i, dims in self._some(level, list(enumerate(DIMS))):
            yield self.make(dtypes, i, dims=dims, q_len=9, kv_len=70, attrs=MASKS[i % 2], batch=2)
        if level == "full":
            for i, d in enumerate(range(32, 257, 8)):
                yield self.make(dtypes, i, dims=(d, d), q_len=70, kv_len=130, attrs=MASKS[i % 2])

    def _masks(self, dtypes, level, seed):
        """Every mask with every score, prefix, sinks and ALiBi in turn."""
        for i, (mask, score) in self._some(level, list(enumerate(itertools.product(MASKS, SCORES)))):
            yield self.make(dtypes, i, q_len=21, kv_len=30, attrs=mask | score, dims=(32, 32))
            if level == "full":
                yield self.make(dtypes, i + 1, q_len=150, kv_len=400, attrs=mask | score, dims=(64, 64))

    def _combined(self, dtypes, level, seed):
        """Every combination in every layout, over two tiles of keys, or, decoding, several. Each has few rows in f16 and many in
        bf16, or the other way round."""
        dims = [(64, 64), (128, 128), (192, 128), (256, 256), (96, 96), (512, 512), (72, 72)]
        sizes, window_right = COMBINED[self.op], 10 if self.op == "attention" else 0
        first = int(dict(dtypes)["T"] == "bf16")
        every = list(itertools.product(enumerate(combinations(window_right)), enumerate(self.layouts)))
        for (i, (attrs, extras)), (j, modes) in {"smoke": [], "ci": every[::29], "full": every}[level]:
            heads, q_len, kv_len = sizes[(first + i + i // 8 + j) % len(sizes)]  # i // 8: not as modes take turns
            yield self.make(
                dtypes, i, mode=modes[i % len(modes)], q_len=q_len, kv_len=kv_len, attrs=attrs, extras=extras,
                dims=dims[(i + j) % 7], heads=heads, batch=2, page_size=[16, 64, 7, 1, 32][i % 5],
            )  # fmt: skip

    def _options(self, dtypes, level, seed):
        """Every set of options, masked and not."""
        names = ("prefix_len", "sinks", "alibi", "lse")
        sets = [s for n in range(5) for s in itertools.combinations(names, n)]
        for i, extras in self._some(level, list(enumerate(sets))):
            attrs = [{"causal": True}, {}, {"causal": True, "window_left": 4, "softcap": 8.0}][i % 3]
            yield self.make(dtypes, i, q_len=12, kv_len=14, attrs=attrs, extras=extras, dims=(40, 24))

    def _lengths(self, dtypes, level, seed):
        """Many sequences, of every kind: none, shorter than q, longer."""
        for i, mode in enumerate(self.modes):
            for j, attrs in enumerate(MASKS[:2] if level != "full" else MASKS):
                yield self.make(dtypes, i + j, mode=mode, q_len=8, kv_len=40, batch=13, attrs=attrs, dims=(32, 32))
            for lengths in ("full", "one") if level == "full" else ():
                yield self.make(dtypes, i, mode=mode, q_len=70, kv_len=150, batch=5, lengths=lengths, dims=(64, 64))

    def _paged(self, dtypes, level, seed):
        mode = self.modes[-1]  # the last one is paged
        for i, size in self._some(level, list(enumerate(PAGE_SIZES))):
            for j, attrs in enumerate([{}, {"causal": True}, {"causal": True, "window_left": 20}]):
                yield self.make(
                    dtypes, 3 * i + j, mode=mode, page_size=size, q_len=6, kv_len=100, attrs=attrs, dims=(64, 64)
                )

    def _tiles(self, dtypes, level, seed):
        """Lengths and windows of several tiles, for heads of every width that a kernel has tiles of."""
        dims = [(128, 128), (64, 64), (256, 256), (192, 128), (96, 96), (512, 512), (64, 256)]
        for i, (q_len, kv_len, attrs) in self._some(level, list(enumerate(TILED))):
            for j, d in enumerate(dims if level == "full" else dims[i % 7 : i % 7 + 1]):
                yield self.make(
                    dtypes, i + j, q_len=q_len, kv_len=kv_len, attrs=attrs, dims=d, batch=2, heads=HEADS[(i + j) % 4]
                )
        # Blocks for every SM of a large GPU: with fewer, rows take tiles of fewer queries. Of 128 rows, and of 64.
        many = [((64, 16), (128, 128)), ((16, 4), (128, 128)), ((64, 16), (64, 64)), ((16, 4), (256, 256)),
                ((16, 4), (192, 128)), ((16, 4), (64, 64))]  # fmt: skip
        for i, (heads, d) in self._some(level, list(enumerate(many))):
            attrs = {"causal": True, "window_left": 150}
            yield self.make(dtypes, i, q_len=129, kv_len=200, attrs=attrs, dims=d, heads=heads)
        # One query, few heads: every width that a kernel has code for, at every level
        if self.op == "attention_decode":
            for i, d in enumerate([(128, 128), (256, 256), (512, 512)]):
                yield self.make(dtypes, i, mode=self.modes[0], page_size=16, q_len=1, kv_len=333, attrs={"causal": True},
                                dims=d, batch=2, heads=(8, 2))  # fmt: skip
        # Keys of three kv heads that fit in L2 together, and one head left over.
        if level == "full" and self.op == "attention":
            for mode in self.layouts[0][0], self.layouts[1][0]:
                yield self.make(dtypes, 0, mode=mode, q_len=140, kv_len=4200, attrs={"causal": True}, dims=(256, 256),
                                heads=(14, 7), batch=1)  # fmt: skip

    def _ratios(self, dtypes, level, seed):
        """Many heads to a kv head."""
        dims = [(64, 64), (128, 128), (256, 256), (192, 128), (96, 96), (512, 512), (64, 256)]
        masks = [{"causal": True}, {}, {"causal": True, "window_left": 70}, {"softcap": 10.0}]
        for i, (heads, q_len) in self._some(level, list(enumerate(RATIOS))):
            for j in range(3 if level == "full" else 1):
                yield self.make(
                    dtypes, i + j, q_len=q_len, kv_len=100, heads=heads, dims=dims[(i + 2 * j) % 7],
                    attrs=masks[(i + j) % 4], batch=2,
                )  # fmt: skip

    def _many(self, dtypes, level, seed):
        """More sequences than a warp has lanes, many of them empty."""
        for i, mode in enumerate(self.modes):
            for batch in (33, 100) if level == "full" else (33 + 37 * (i % 2),):
                yield self.make(
                    dtypes, i, mode=mode, q_len=3, kv_len=9, batch=batch, attrs=MASKS[1], dims=(32, 32), heads=(2, 1)
                )
        if self.op == "attention_decode":  # an item for every block of a large GPU: even batches are left whole
            for i, (size, d) in self._some(level, list(enumerate([(16, 64), (1, 64), (16, 128)]))):
                yield self.make(dtypes, i, mode=self.modes[0], page_size=size, q_len=1, kv_len=200, batch=132,
                                attrs={"causal": True}, dims=(d, d), heads=(4, 2))  # fmt: skip

    def _strided(self, dtypes, level, seed):
        for i in range({"smoke": 3, "ci": 8, "full": 24}[level]):
            yield self.make(dtypes, i, q_len=9, kv_len=40, strides="random", seed=100 + i)

    def _misaligned(self, dtypes, level, seed):
        for i, shift in enumerate(self.shifts(dtypes)):
            yield self.make(dtypes, i, q_len=9, kv_len=70, shift=shift, dims=(64, 64))
        for i, mode in enumerate(self.modes[:1] if level == "smoke" else self.modes):  # each tensor alone
            case = self.make(dtypes, i, mode=mode, q_len=9, kv_len=70, shift=8, dims=(64, 64), extras=("lse",))
            for t in self.schema.tensors:
                if not t.optional or t.name in case.present:
                    yield dataclasses.replace(case, moved=t.name)

    def _inplace(self, dtypes, level, seed):
        return ()

    def _special(self, dtypes, level, seed):
        for i in range(len(self.modes)):
            yield self.make(dtypes, i, mode=self.modes[i], q_len=6, kv_len=30, batch=4, fill="special", extras=("lse",))

    def _empty(self, dtypes, level, seed):
        for i, mode in enumerate(self.modes):
            yield self.make(dtypes, i, mode=mode, q_len=5, kv_len=0, attrs={}, dims=(16, 16))  # no key at all
            yield self.make(dtypes, i, mode=mode, q_len=5, kv_len=0, attrs={}, extras=("sinks", "lse"), dims=(16, 16))
            if self.op == "attention":
                yield self.make(dtypes, i, mode=mode, q_len=0, kv_len=5, attrs={}, dims=(16, 16))
            yield self.make(dtypes, i, mode=mode, q_len=2, kv_len=5, batch=0, attrs={}, dims=(16, 16))
            yield self.make(dtypes, i, mode=mode, q_len=2, kv_len=5, heads=(0, 2), attrs={}, dims=(16, 16))
            yield self.make(dtypes, i, mode=mode, q_len=2, kv_len=5, attrs={}, extras=("sinks", "lse"), dims=(16, 0))

    def random_case(self, dtypes, rng, seed):
        def one(items):
            return items[rng.integers(len(items))]

        top = 250 if self.op == "attention" else 8
        q_len, kv_len = int(np.exp(rng.uniform(0, np.log(top)))), int(np.exp(rng.uniform(0, 6)))
        return self.make(
            dtypes, int(rng.integers(1000)), q_len=q_len, kv_len=kv_len, dims=one(DIMS), batch=int(rng.integers(1, 6)),
            strides=str(rng.choice(["dense", "random"])), seed=seed,
        )  # fmt: skip


VARIANTS = [{"causal": True}, {"causal": True, "window_left": 4, "softcap": 10.0}]


# ---- inputs ---------------------------------------------------------------------------------------------------------------


def parts(rng, total, count, lengths, owner):
    """Where `count` sequences of `total` tokens begin and end. Drawn, some of them are empty; "one": all is the owner's."""
    if lengths == "full":
        return np.arange(count + 1) * total // max(count, 1)
    if lengths == "one":
        return np.where(np.arange(count + 1) > owner, total, 0)
    cuts = np.sort(rng.integers(0, total + 1, max(count - 1, 0)))
    if count > 2 and rng.random() < 0.5:
        cuts[1] = cuts[0]
    return np.concatenate([[0], cuts, [total]])[: count + 1]


def draw(rng, t, a):
    """Lengths, page tables and numbers of a size that a softmax does something with."""
    batch, seen = a.batch, set()
    for name in ("q", "k", "v"):
        size = np.sqrt(np.mean(np.where(np.isfinite(t[name]), t[name], 0) ** 2)) if t[name].size else 1.0
        t[name] = t[name] / max(size, 1e-30) * (1.0 if name != "q" else float(rng.choice([1.0, 1.0, 3.0, 0.3])))
    if rng.random() < 0.3:  # scores that grow along a sequence, or fall, or both: sums so far lose or keep all weight
        size = 4.0 ** (np.arange(a.page_size) / max(a.page_size - 1, 1) * 2 - 1)
        size = size[:: int(rng.choice([-1, 1]))][None] * 2.0 ** rng.uniform(-1, 1, (a.pages, 1))
        t["k"] = t["k"] * size[..., None, None]
    t["v"] = np.nan_to_num(t["v"])  # a NaN that a query does not see may share a tile with what it sees
    owner = int(rng.integers(batch)) if a.lengths == "one" and batch else 0
    if t.get("cu_q") is not None:
        t["cu_q"][...] = parts(rng, a.rows, batch, a.lengths, owner)
    if t.get("cu_kv") is not None:
        t["cu_kv"][...] = parts(rng, a.page_size, batch, a.lengths, owner)
    if t.get("kv_len") is not None and batch:
        lengths = rng.integers(0, a.max_kv + 1, batch)
        lengths[rng.integers(batch)] = a.max_kv
        if batch > 2:
            lengths[rng.permutation(batch)[:2]] = [0, min(1, a.max_kv)]
        if batch > 3:  # more than there is, and less than nothing
            lengths[rng.permutation(batch)[:2]] = [
                a.max_kv + int(rng.choice([1, 2**30])),
                -(2 ** int(rng.integers(32))),
            ]
        if a.lengths == "full" or (batch > 128 and rng.random() < 0.5):
            lengths[...] = a.max_kv
        if a.lengths == "one":
            lengths = np.where(np.arange(batch) == owner, a.max_kv, 0)
        t["kv_len"][...] = lengths
    if t.get("prefix_len") is not None:
        t["prefix_len"][...] = rng.integers(0, max(a.max_kv, 1) + 2, batch)
    if t.get("sinks") is not None:
        t["sinks"] = rng.standard_normal(t["sinks"].shape) * 2
    if t.get("alibi") is not None:
        t["alibi"] = 2.0 ** -rng.integers(0, 8, t["alibi"].shape)
    kind = getattr(a, "K", a.T)
    if kind in ("e4m3", "i8"):
        for name in ("k", "v"):
            t[name] = np.clip(np.rint(t[name] * 40), -127, 127) if kind == "i8" else np.clip(t[name] * 8, -440, 440)
            step = 1 / 40 if kind == "i8" else 1 / 8
            if t.get(f"{name}_scale") is not None:
                t[f"{name}_scale"] = step * rng.uniform(0.5, 1.5, t[f"{name}_scale"].shape)
            elif name == "k" and rng.random() < 0.5:  # else one key has all the weight
                t["q"] = t["q"] * step
    table = t.get("page_table")
    if table is not None:
        order = iter(rng.permutation(a.pages))
        for b in range(batch):
            for j in range(a.max_pages):
                # Distinct pages as long as there are any; then shared ones, as of a common prompt.
                page = next(order, None)
                table[b, j] = rng.integers(a.pages) if page is None and a.pages else page
    # What no query of a sequence sees is not read.
    for b in range(batch):
        first, n, kv = sequence(t, a, b)
        keys = np.flatnonzero(mask_of(t, a, b, n, kv).any(0)) if n else np.zeros(0, int)
        places = [place(t, a, b, j) for j in keys]
        seen.update(places)
        if table is not None:
            used = {int(j) // a.page_size for j in keys}
            table[b, [j for j in range(a.max_pages) if j not in used]] = GARBAGE
    unseen = np.ones((a.pages, a.page_size), bool)
    for page, slot in seen:
        unseen[page, slot] = False
    for name in ("k", "v", "k_scale", "v_scale"):
        if t.get(name) is not None:
            if a.scales != "token" and name.endswith("scale"):
                continue  # one for several tokens
            t[name][unseen] = np.nan if name.endswith("scale") or kind != "i8" else 127


# ---- the rules, as the schema says them ---------------------------------------------------------------------------------


def sequence(t, a, b):
    """The first query, queries and keys of a sequence."""
    cu_q, cu_kv = t.get("cu_q"), t.get("cu_kv")
    first, n = (int(cu_q[b]), int(cu_q[b + 1] - cu_q[b])) if cu_q is not None else (b * a.q_len, a.q_len)
    if cu_kv is not None:
        return first, n, int(cu_kv[b + 1] - cu_kv[b])
    if t.get("kv_len") is None:
        return first, n, a.page_size
    return first, n, min(max(int(t["kv_len"][b]), 0), a.max_kv)


def place(t, a, b, j):
    if t.get("cu_kv") is not None:
        return 0, int(t["cu_kv"][b]) + int(j)
    if t.get("page_table") is None:
        return b, int(j)
    return int(t["page_table"][b, j // a.page_size]), int(j % a.page_size)


def seen_places(t, a, b, sees):
    """[keys, 2]: where each is, -1 where no query sees it."""
    places = [place(t, a, b, j) if seen else (-1, -1) for j, seen in enumerate(sees.any(0))]
    return np.array(places).reshape(-1, 2).astype(int)


def mask_of(t, a, b, n, kv):
    """[n, kv]: which query sees which key."""
    p, j = np.arange(n)[:, None] + kv - n, np.arange(kv)[None, :]
    prefix = 0 if t.get("prefix_len") is None else t["prefix_len"][b]
    sees = (j <= p) | (j < prefix) if a.causal else np.ones((n, kv), bool)
    if a.window_left >= 0:
        sees = sees & (j >= p - a.window_left)
    if a.window_right >= 0:
        sees = sees & (j <= p + a.window_right)
    return sees


def reference(t, a):
    t = t.__dict__
    q = t["q"].reshape(int(np.prod(t["q"].shape[:-2])), a.heads, a.head_dim)
    y, lse = np.zeros((q.shape[0], a.heads, a.v_dim)), np.full((q.shape[0], a.heads), -np.inf)
    y_error, lse_error = np.zeros(y.shape), np.zeros(lse.shape)
    group = a.heads // a.kv_heads
    for b in range(a.batch):
        first, n, kv = sequence(t, a, b)
        if n == 0:
            continue
        sees = mask_of(t, a, b, n, kv)
        k, v = (gather(t, name, seen_places(t, a, b, sees)) for name in ("k", "v"))
        for h in range(a.heads):
            rows = slice(first, first + n)
            sink = None if t["sinks"] is None else t["sinks"][h]
            slope = 0.0 if t["alibi"] is None else t["alibi"][h]
            one = attend(q[rows, h], k[:, h // group], v[:, h // group], sees, slope, sink, a)
            y[rows, h], lse[rows, h], y_error[rows, h], lse_error[rows, h] = one
    shape = t["q"].shape[:-1]
    return {
        "y": Expected(y.reshape(*shape, a.v_dim), error=y_error.reshape(*shape, a.v_dim)),
        "lse": Expected(lse.reshape(shape), error=lse_error.reshape(shape)),
    }


def gather(t, name, places):
    """[keys, kv_heads, dim] of a sequence, scaled; 0 for keys that no query sees."""
    seen = places[:, 0] >= 0
    x = np.zeros((len(places), *t[name].shape[2:]))
    x[seen] = t[name][places[seen, 0], places[seen, 1]]
    if t.get(f"{name}_scale") is not None:
        x[seen] *= t[f"{name}_scale"][places[seen, 0], places[seen, 1]][..., None]
    return x


def attend(q, k, v, sees, slope, sink, a):
    """One head: y, lse, and how far each may be off. An error e of a score is a factor exp(e) of its weight; tensor cores
    take weights rounded to T, of which f16 has none below 2^-25 and bf16 none below LEAST. 8-bit caches are multiplied in f16
    for bf16 as well, whose small weights must not get lost: rows lift the largest to 2^15."""
    n, kv = sees.shape
    lean, scale = a.T != "f32", a.scale or 1 / np.sqrt(a.head_dim)
    s = scale * (q @ k.T)
    e = product_error(scale * (np.abs(q) @ np.abs(k).T), a.head_dim) + 4 * F32 * np.abs(s)
    if a.softcap:
        s = a.softcap * np.tanh(s / a.softcap)
        e = e + (FAST_MATH if lean else 8 * F32) * np.abs(s)
    away = slope * np.abs(np.arange(n)[:, None] + kv - n - np.arange(kv)[None, :])
    s, e = s - away, e + 3 * F32 * (np.abs(s) + away)
    s, e = np.where(sees, s, -np.inf), np.where(sees, e, 0.0)
    extra = np.full((n, 1), -np.inf if sink is None else sink)
    most = np.max(np.concatenate([s, extra], 1), 1, keepdims=True)
    most = np.where(most == -np.inf, 0, most)
    p = np.where(sees, np.exp(s - most), 0.0)
    total = p.sum(1, keepdims=True) + np.exp(extra - most)
    w = np.divide(p, total, out=np.zeros_like(p), where=total != 0)
    y = w @ v
    with np.errstate(divide="ignore"):
        lse = np.log(total[:, 0]) + most[:, 0]
    lse = np.where(total[:, 0] == 0, -np.inf, lse)
    e = e + np.where(sees, F32 * (8 + 4 * np.abs(np.where(sees, s, 0)) + 4 * np.abs(most)), 0)
    e_sink = 0 if sink is None else F32 * (8 + 4 * abs(sink) + 4 * np.abs(most)) * np.exp(extra - most) / total
    size, mean = w @ np.abs(v), (w * e).sum(1, keepdims=True) + e_sink
    rounded = UNIT[a.T] if lean else 0.0
    y_error = (w * (e + rounded)) @ np.abs(v) + np.abs(y) * mean + product_error(size, kv)
    above = np.where(total == 0, 1, total)
    if lean:
        y_error = y_error + (2.0**-25 if a.T == "f16" else LEAST) * (sees @ np.abs(v)) / above
    if lean and getattr(a, "K", a.T) in ("e4m3", "i8"):
        y_error = y_error + 2.0**-40 * np.max(np.abs(v), initial=0) * kv / above
    lse_error = mean[:, 0] + F32 * (8 + 2 * np.log2(max(kv, 1)) + 4 * np.abs(most[:, 0]))
    return y, lse, y_error, lse_error
