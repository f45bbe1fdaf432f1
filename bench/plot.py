# SPDX-License-Identifier: Apache-2.0
"""Bar charts as SVG text, from the standard library alone. The colours follow the reader's light or dark setting."""

from html import escape

STYLE = """
  .bg { fill: #ffffff; } .text { fill: #24292f; } .soft { fill: #57606a; } .grid { stroke: #d0d7de; }
  .bar { fill: #2f6fbd; } .bar2 { fill: #1f9d8a; } .mark1 { fill: #d9822b; } .mark2 { fill: #8250df; }
  .mark1, .mark2 { stroke: #ffffff; } .limit { stroke: #cf222e; }
  text { font: 11px system-ui, sans-serif; } .title { font-size: 14px; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117; } .text { fill: #e6edf3; } .soft { fill: #9aa4af; } .grid { stroke: #30363d; }
    .bar { fill: #4c8ddb; } .bar2 { fill: #2fbfa8; } .mark1 { fill: #f0a35e; } .mark2 { fill: #b392f0; }
    .mark1, .mark2 { stroke: #0d1117; } .limit { stroke: #ff7b72; }
  }
"""
LABEL, PLOT, RIGHT, ROW, TOP = 340, 430, 60, 18, 64  # pixels


def bars(title, unit, rows, limit=None, limit_name="", marks=(), step=1.0, groups=("bar",)):
    """One horizontal chart. rows: (label, [value of each group], [value or None of each mark]); marks: their names;
    groups: (name, ...) where there is more than one bar a row; limit: a vertical line."""
    values = [v for _, bar, mark in rows for v in [*bar, *(m for m in mark if m is not None)]]
    most = max([*values, limit or 0]) * 1.05
    height = TOP + ROW * len(rows) * len(groups) + 30
    width = LABEL + PLOT + RIGHT

    def x(value):
        return LABEL + PLOT * value / most

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect class="bg" width="{width}" height="{height}" rx="6"/>',
        f'<text class="text title" x="16" y="24">{escape(title)}</text>',
        *_legend(groups, marks, limit_name),
    ]
    bottom = height - 24
    value = 0.0
    while value <= most:
        out.append(f'<line class="grid" x1="{x(value):.1f}" y1="{TOP - 6}" x2="{x(value):.1f}" y2="{bottom}"/>')
        out.append(f'<text class="soft" x="{x(value):.1f}" y="{bottom + 15}" text-anchor="middle">{value:g}</text>')
        value += step
    out.append(f'<text class="soft" x="{width - 8}" y="{bottom + 15}" text-anchor="end">{escape(unit)}</text>')
    y = TOP
    for label, heights, mark in rows:
        middle = y + ROW * len(groups) / 2
        out.append(f'<text class="text" x="{LABEL - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(label)}</text>')
        for i, v in enumerate(heights):
            top = y + i * ROW
            kind = "bar" if i == 0 else "bar2"
            out.append(
                f'<rect class="{kind}" x="{LABEL}" y="{top + 2}" width="{x(v) - LABEL:.1f}" height="{ROW - 5}"/>'
            )
            out.append(f'<text class="soft" x="{width - RIGHT + 6}" y="{top + 13}">{v:.2f}</text>')
        for i, v in enumerate(mark):
            if v is not None:
                out.append(_mark(i, x(v), middle))
        y += ROW * len(groups)
    if limit:
        out.append(f'<line class="limit" x1="{x(limit):.1f}" y1="{TOP - 6}" x2="{x(limit):.1f}" y2="{bottom}"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _mark(i, x, y):
    if i == 0:
        return f'<circle class="mark1" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    return f'<path class="mark2" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'


def _legend(groups, marks, limit_name):
    out, x = [], 16
    for i, name in enumerate(groups):
        out.append(f'<rect class="{"bar" if i == 0 else "bar2"}" x="{x}" y="37" width="12" height="10"/>')
        out.append(f'<text class="soft" x="{x + 17}" y="46">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    for i, name in enumerate(marks):
        out.append(_mark(i, x + 5, 42))
        out.append(f'<text class="soft" x="{x + 15}" y="46">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    if limit_name:
        out.append(f'<line class="limit" x1="{x + 5}" y1="36" x2="{x + 5}" y2="48"/>')
        out.append(f'<text class="soft" x="{x + 13}" y="46">{escape(limit_name)}</text>')
    return out
