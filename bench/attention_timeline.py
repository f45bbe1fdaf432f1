# SPDX-License-Identifier: Apache-2.0
"""When the two consumer warpgroups of attention_sm90 do what: a picture, and the medians that docs/measured-facts.md quotes.

The stamps are in bench/results/<gpu>/attention_timeline.json, which says what each of them is.
"""

from html import escape
from itertools import pairwise
from statistics import median

from bench import plot

BEGIN, TURN, ISSUED, SCORES, VALUES, SOFTMAX = range(6)  # the stamps of a block of keys
# class in the picture, name; phase i lies between stamps i and i + 1
PHASES = (
    ("turn", "waiting for K and its turn"),
    ("issue", "issuing products"),
    ("scores", "waiting for the scores"),
    ("values", "waiting for P V"),
    ("softmax", "softmax"),
)
STYLE = """
  .turn { fill: #afb8c1; } .issue { fill: #2f6fbd; } .scores { fill: #8250df; } .values { fill: #1f9d8a; }
  .softmax { fill: #d9822b; } .busy { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    .turn { fill: #6e7681; } .issue { fill: #4c8ddb; } .scores { fill: #b392f0; } .values { fill: #2fbfa8; }
    .softmax { fill: #f0a35e; } .busy { fill: #9aa4af; }
  }
"""
WINDOW, TICK = 14000, 2000  # cycles: five blocks of 128 keys, four of 176
LABEL, PLOT, RIGHT, TOP, LANE, STRIP, CHART = 150, 656, 24, 64, 22, 10, 120  # pixels


# ---- what the stamps say ---------------------------------------------------------------------------------------------


def products(warpgroup):
    """Intervals with products under way, begun but not yet seen to be done: no shorter than the matrix units' work."""
    return [(block[TURN], block[VALUES]) for block in warpgroup]


def union(intervals):
    out = []
    for begin, end in sorted(intervals):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def clipped(intervals, begin, end):
    return [(max(a, begin), min(b, end)) for a, b in intervals if a < end and b > begin]


def covered(intervals, begin, end):
    return sum(b - a for a, b in clipped(intervals, begin, end))


def medians(run):
    """(name, median of each warpgroup), in cycles over the blocks of keys of a run."""
    both = run["warpgroups"]
    rows = [(name, [median(b[i + 1] - b[i] for b in w) for w in both]) for i, (_, name) in enumerate(PHASES)]
    # The last block's softmax lies beside products that are no longer in the data.
    beside = [
        [covered(products(other), b[VALUES], b[SOFTMAX]) for b in w[:-1]]
        for w, other in zip(both, both[::-1], strict=True)
    ]
    rows.append(("of it with products of the other under way", [median(x) for x in beside]))
    rows.append(("from there to the next block", [median(n[BEGIN] - b[SOFTMAX] for b, n in pairwise(w)) for w in both]))
    rows.append(("from block to block", [median(n[BEGIN] - b[BEGIN] for b, n in pairwise(w)) for w in both]))
    return rows


def without_products(run):
    """Median cycles between one block of keys and the next in which neither warpgroup has products under way."""
    return median(n[0] - b[1] for b, n in pairwise(union(i for w in run["warpgroups"] for i in products(w))))


def lines(data):
    """The table of the medians: a column for each run and warpgroup. docs/measured-facts.md has these lines."""
    names = [name for name, _ in medians(data["runs"][0])]
    by_run = [dict(medians(run)) for run in data["runs"]]
    rows = [[name, *(f"{v:.0f}" for run in by_run for v in run[name])] for name in names]
    idle = [cell for run in data["runs"] for cell in (f"{without_products(run):.0f}", "")]
    head = ["median cycles", *(f"{run['keys']} keys, wg {wg}" for run in data["runs"] for wg in (0, 1))]
    rows.append(["of that without products of either", *idle])
    return ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in [head, *rows]]


# ---- the picture -----------------------------------------------------------------------------------------------------


def picture(gpu, data):
    width, height = LABEL + PLOT + RIGHT, TOP + CHART * len(data["runs"]) + 4
    title = f"{gpu.upper()}: two warpgroups of {data['row']}, {data['case']}, head_dim {data['dims']['head_dim']}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{plot.STYLE}{STYLE}</style>",
        f'<rect class="bg" width="{width}" height="{height}" rx="6"/>',
        f'<text class="text title" x="16" y="24">{escape(title)}</text>',
    ]
    x = 16
    for kind, name in PHASES:
        out.append(f'<rect class="{kind}" x="{x}" y="37" width="12" height="10"/>')
        out.append(f'<text class="soft" x="{x + 17}" y="46">{escape(name)}</text>')
        x += 34 + 6 * len(name)
    for i, run in enumerate(data["runs"]):
        out += _chart(run, TOP + i * CHART)
    return "\n".join([*out, "</svg>"]) + "\n"


def _chart(run, top):
    """Lanes of both warpgroups and the strip below them, from the second block of warpgroup 0 on: both are in it then."""
    start = run["warpgroups"][0][1][BEGIN]
    lanes, strip = top + 20, top + 20 + 2 * (LANE + 4)
    bottom = strip + STRIP + 6
    out = [f'<text class="text" x="16" y="{top + 10}">{run["keys"]} keys a block</text>']
    for value in range(0, WINDOW + 1, TICK):
        x = LABEL + PLOT * value / WINDOW
        out.append(f'<line class="grid" x1="{x:.1f}" y1="{lanes - 4}" x2="{x:.1f}" y2="{bottom}"/>')
        out.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 13}" text-anchor="middle">{value}</text>')
    out.append(f'<text class="soft" x="{LABEL - 24}" y="{bottom + 13}" text-anchor="end">cycles</text>')

    def draw(kind, intervals, y, height):
        for a, b in clipped(intervals, start, start + WINDOW):
            x, wide = LABEL + PLOT * (a - start) / WINDOW, PLOT * (b - a) / WINDOW
            out.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{height}"/>')

    def label(name, y):
        out.append(f'<text class="text" x="{LABEL - 8}" y="{y}" text-anchor="end">{name}</text>')

    for wg, blocks in enumerate(run["warpgroups"]):
        y = lanes + wg * (LANE + 4)
        label(f"warpgroup {wg}", y + 15)
        for i, (kind, _) in enumerate(PHASES):
            draw(kind, [(b[i], b[i + 1]) for b in blocks], y, LANE)
    label("products under way", strip + 9)
    draw("busy", union(i for w in run["warpgroups"] for i in products(w)), strip, STRIP)
    return out
