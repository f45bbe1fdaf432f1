# SPDX-License-Identifier: Apache-2.0
"""Attention in the bench: cases by batch, q_len and kv_len, lengths and page tables that fit them, and float64 results of
some queries of some sequences, with all of their heads."""

import random
from dataclasses import replace
from types import SimpleNamespace

from bench.products import Sampled

SEQUENCES, QUERIES = 3, 16  # that are looked at; the first and the last are among them
KEYS = ("batch", "q_len", "kv_len", "page", "packed")


def line(op, one):
    """A case as the schema has it, of one that gives batch, q_len, kv_len and, if paged, the size of a page; packed: all
    sequences in one tensor."""
    if "kv_len" not in one:
        return one
    rest = {k: v for k, v in one.items() if k not in KEYS}
    batch, q_len, kv_len, page = one["batch"], one["q_len"], one["kv_len"], one.get("page", 0)
    rest.setdefault("v_dim", rest["head_dim"])
    give = list(rest.get("give", ()))
    if one.get("packed"):
        return {**rest, "lead": [batch * q_len], "pages": 1, "page_size": batch * kv_len, "cu_len": batch + 1,
                "give": [*give, "cu_q", "cu_kv"]}  # fmt: skip
    of_q = {"lead": [batch, q_len]} if op == "attention" else {"batch": batch, "q_len": q_len}
    if not page:
        return {**rest, **of_q, "pages": batch, "page_size": kv_len}
    many = -(-kv_len // page)
    paged = {"pages": batch * many, "page_size": page, "max_pages": many, "give": [*give, "page_table"]}
    if op == "attention":
        paged |= {"seqs": batch, "give": [*paged["give"], "kv_len"]}
    return {**rest, **of_q, **paged}


def is_one(op):
    """Whether the op reads K and V, and its cases are named by sequences."""
    return op.name in ("attention", "attention_decode")


def dims(case):
    """What a result is filed under; page_size is 0 where K and V are not paged."""
    d, page = case.dims, case.sizes["page_size"] if "page_table" in case.give else 0
    names = ("batch", "heads", "kv_heads", "q_len", "max_kv", "head_dim")
    return {n.replace("max_kv", "kv_len"): d[n] for n in names} | {"page_size": page}


def label(case):
    """batch x heads x kv_heads x q_len (where it is not kv_len) x kv_len, then what is not usual: 4x32x32x4096_causal"""
    d, v_dim, a = dims(case), case.sizes["v_dim"], dict(case.attrs)
    sizes = [d[n] for n in ("batch", "heads", "kv_heads", "q_len", "kv_len")]
    if d["q_len"] == d["kv_len"]:
        sizes.pop()
    words = ["x".join(map(str, sizes))]
    if d["head_dim"] != 128 or v_dim != 128:
        words.append(f"hd{d['head_dim']}" + (f"-{v_dim}" if v_dim != d["head_dim"] else ""))
    words += [f"page{d['page_size']}"] * ("page_table" in case.give) + ["varlen"] * ("cu_kv" in case.give)
    words += ["causal"] * bool(a.pop("causal", False))
    return "_".join(words + [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in a.items()])


def smaller(case):
    """Half of the sequences, else of the heads, else of the keys and queries."""
    sizes, lead = dict(case.sizes), case.lead
    batch, packed = case.dims["batch"], "cu_kv" in case.give
    if batch > 1:
        half = {"batch": batch // 2, "seqs": batch // 2, "cu_len": batch // 2 + 1}
        half["page_size" if packed else "pages"] = sizes["page_size" if packed else "pages"] // batch * (batch // 2)
        sizes |= {k: v for k, v in half.items() if sizes.get(k)}
        lead = (lead[0] // batch * (batch // 2), *lead[1:]) if lead else ()
    elif sizes["kv_heads"] % 2 == 0:
        sizes |= {"heads": sizes["heads"] // 2, "kv_heads": sizes["kv_heads"] // 2}
    else:
        name = "max_pages" if "page_table" in case.give else "page_size"
        sizes[name] //= 2
        if name == "max_pages":
            sizes["pages"] = sizes[name]
        lead = (*lead[:-1], max(lead[-1] // 2, 1)) if lead else ()
    if "rows" in sizes:
        sizes["rows"] = 1
        for n in lead:
            sizes["rows"] *= n
    return replace(case, sizes=sizes, lead=lead)


def prepare(m, args):
    """Every sequence as long as it can be, its pages in any order; scales above 0; positions that a table has."""
    rng = random.Random(1)
    table, k = args.get("page_table"), args.get("k")
    if args.get("pos") is not None:
        n = args["pos"].shape[0]
        m.fill(args["pos"], [i % args["table_q"].shape[0] for i in range(n)])
    if table is not None:
        pages = list(range(k.shape[0]))
        rng.shuffle(pages)
        m.fill(table, pages[: table.shape[0] * table.shape[1]])
    if args.get("kv_len") is not None:
        keys = k.shape[1] * (table.shape[1] if table is not None else 1)
        m.fill(args["kv_len"], [keys] * args["kv_len"].shape[0])
    for name, tokens in (("cu_q", "q"), ("cu_kv", "k")):
        if args.get(name) is not None:
            n = args[name].shape[0] - 1
            total = args[tokens].shape[0 if tokens == "q" else 1]
            m.fill(args[name], [i * (total // n) for i in range(n)] + [total])
    for name in ("k_scale", "v_scale"):
        if args.get(name) is not None:
            m.assign(args[name], abs(m.f64(args[name])) / 8 + 0.1)


class Picked(Sampled):
    """Some tokens of all sequences together."""

    def __init__(self, shape, tokens, values):
        super().__init__(shape, tokens, values)

    def pairs(self, have):
        return [(have.reshape(-1, *have.shape[-2:])[self.lines], self.values)]


def _pick(n, most):
    return sorted({round(i * (n - 1) / max(most - 1, 1)) for i in range(most)}) if n else []


def _keys(m, a, name, b, kv):
    """[kv, kv_heads, dim] of a sequence in float64."""
    x, scale = getattr(a, name), getattr(a, f"{name}_scale", None)
    if getattr(a, "cu_kv", None) is not None:
        first = int(a.cu_kv[b])
        part = x[0, first : first + kv]
    elif a.page_table is not None:
        pages = a.page_table[b].tolist()
        part = x[pages].reshape(-1, *x.shape[2:])[:kv]
        scale = None if scale is None else scale[pages].reshape(-1, x.shape[2])[:kv]
    else:
        part, scale = x[b, :kv], None if scale is None else scale[b, :kv]
    part = m.f64(part)
    return part if scale is None else part * m.f64(scale)[..., None]


def attention(m, a):
    q = a.q.reshape(-1, *a.q.shape[-2:])
    cu_q, cu_kv, kv_len = (getattr(a, n, None) for n in ("cu_q", "cu_kv", "kv_len"))
    seqs = [x.shape[0] - 1 for x in (cu_q, cu_kv) if x is not None] + [
        x.shape[0] for x in (kv_len, a.k) if x is not None
    ]
    batch, tokens, found = seqs[0], [], []
    heads, kv_heads = q.shape[1], a.k.shape[2]
    scale = a.scale or q.shape[2] ** -0.5
    for b in _pick(batch, SEQUENCES):
        n = q.shape[0] // batch
        kv = int(kv_len[b]) if kv_len is not None else a.k.shape[1] // (batch if cu_kv is not None else 1)
        k, v = (_keys(m, a, name, b, kv) for name in ("k", "v"))
        j = m.xp.cumsum(m.xp.ones_like(k[:, 0, 0]), 0) - 1
        for i in _pick(n, QUERIES):
            p = i + kv - n
            one = m.f64(q[b * n + i]).reshape(kv_heads, heads // kv_heads, -1)
            s = scale * m.xp.einsum("kgd,tkd->kgt", one, k)
            s = a.softcap * m.xp.tanh(s / a.softcap) if a.softcap else s
            hidden = j != j
            if a.causal:
                hidden = hidden | (j > p)
            if a.window_left >= 0:
                hidden = hidden | (j < p - a.window_left)
            if a.window_right >= 0:
                hidden = hidden | (j > p + a.window_right)
            w = m.xp.exp(s - s.max()) * m.f64(~hidden)
            w = w / w.sum(-1)[..., None]
            tokens.append(b * n + i)
            found.append(m.xp.einsum("kgt,tkd->kgd", w, v).reshape(heads, -1))
    return {"y": Picked(tuple(a.y.shape), tokens, m.xp.stack(found))}


def attention_merge(m, a):
    w = m.xp.exp(m.f64(a.lse))
    total = w.sum(-1)[..., None]
    want = {"y": ((w / total)[..., None] * m.f64(a.x)).sum(-2)}
    return want if a.lse_out is None else want | {"lse_out": m.xp.log(total[..., 0])}


def tau_scale(m, a):
    at = [int(p) for p in a.pos]
    return {
        name: m.f64(x) * (m.xp.tanh(m.f64(tok)) + m.f64(table[at]))[..., None]
        for name, x, tok, table in (("q", a.q, a.tok_q, a.table_q), ("v", a.v, a.tok_v, a.table_v))
    }


REFERENCES = {
    "attention": attention,
    "attention_decode": attention,
    "attention_merge": attention_merge,
    "tau_scale": tau_scale,
}


def compute(m, op, args, dtypes):
    return REFERENCES[op](m, SimpleNamespace(**args, **dtypes))
