# SPDX-License-Identifier: Apache-2.0
"""The part of docs/performance.md on the attention family: TFLOP/s for prefill, us and TB/s for decode and the rest."""

from bench import plot
from bench.attention_bars import fastest, over

TITLES = {"cudnn": "cuDNN", "torch": "torch", "tflop_s": "TFLOP/s", "tb_s": "TB/s"}
# ops, the speed that is shown and its digits, digits of a time, baselines
TABLES = (
    (("attention",), "tflop_s", 0, 1, ("cudnn", "torch")),
    (("attention_decode",), "tb_s", 2, 2, ()),
    (("attention_merge", "tau_scale"), "tb_s", 2, 2, ("torch",)),
)
NOTE = """
A case is batch x heads x kv_heads x q_len x kv_len (once, where both are the same), of head_dim 128 unless it says hd; `page`:
K and V in pages of so many tokens, in any order; `varlen`: all sequences in one tensor. Flops are those of the keys that are
seen: half of all with a causal mask, those inside of a window. `x cuDNN`, `x torch`: their time over ours, by PyTorch's
`scaled_dot_product_attention`, held to cuDNN and left to choose; nothing is there for layouts and masks that it does not
have. `with PDL`: calls overlap, and none reads what the one before it writes. The speed is that of the faster of the two.
"""


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def section(gpu, result, table):
    """(text, files). table(head, rows) makes a Markdown table."""
    shown = fastest(result)
    times = {(e["op"], e["case"], e["dtype"], e["pdl"]): e["us"] for e in result["cases"] if e["selected"]}
    name = f"performance/{gpu}_attention.svg"
    text, files = "\n### attention\n" + NOTE, {}
    drawn = [e for e in shown.values() if e["op"] == "attention" and e["dtype"] == "bf16"]
    if drawn:
        files[f"docs/{name}"] = picture(gpu, drawn)
        text += f"\n![]({name})\n"
    for ops, speed, digits, of_time, others in TABLES:
        rows = []
        for key, e in shown.items():
            if e["op"] in ops:
                case = f"{e['case']} ({e['model']})" if e["model"] else e["case"]
                both = [number(times.get((*key, pdl)), of_time) for pdl in (False, True)]
                faster = [number(over(e, other)) for other in others]
                dtype = e["dtype"].replace("_", ", ")
                rows.append([e["op"], case, dtype, f"`{e['row']}`", *both, number(e[speed], digits), *faster])
        head = [
            "op",
            "case",
            "dtype",
            "kernel",
            "us",
            "us with PDL",
            TITLES[speed],
            *(f"x {TITLES[o]}" for o in others),
        ]
        text += "\n" + table(head, rows) if rows else ""
    return text, files


def picture(gpu, entries):
    """Prefill, by TFLOP/s; the baselines are marks."""

    def theirs(e, other):
        ratio = over(e, other)
        return e["tflop_s"] / ratio if ratio else None

    rows = [(e["case"], [e["tflop_s"]], [theirs(e, other) for other in ("cudnn", "torch")]) for e in entries]
    title = f"{gpu.upper()}: attention, prefill in bf16"
    return plot.bars(title, "TFLOP/s", rows, marks=("cuDNN", "torch"), step=100.0, groups=("einkorn",))
