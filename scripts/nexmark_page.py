"""Puts a run of bench/nexmark.py into the README: its table, and docs/nexmark.svg, a plot against the others.

    scripts/with-java .venv/bin/python bench/nexmark.py --peers | tee out/nexmark.txt
    .venv/bin/python scripts/nexmark_page.py out/nexmark.txt

The last line of the file is the run's JSON.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from math import log10
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "nexmark.svg"
BEGIN, END = "<!-- nexmark: written by scripts/nexmark_page.py -->", "<!-- /nexmark -->"

FORMS = {
    "columns": "Headrace, columns",
    "functions": "Headrace, Python",
    "spark": "Spark by hand",
    "udf": "Spark, Python UDF",
    "flink": "Flink SQL",
    "bytewax": "Bytewax",
}
TITLES = {
    "q0": "pass on",
    "q1": "map",
    "q2": "filter",
    "q3": "join",
    "q4": "join, max, mean",
    "q5": "sliding, then max",
    "q6": "last ten of a key",
    "q7": "max per 10 s",
    "q8": "window join",
    "q11": "sessions",
    "q12": "processing time",
    "q14": "filter and map",
    "q17": "running statistics",
    "q18": "last of a key",
    "q19": "top ten of a key",
    "q20": "join, wide rows",
}
LEFT, RIGHT, TOP, ROW = 190, 700, 62, 26
STYLE = """
    text { fill: #444; }
    .tick { stroke: #888; stroke-width: 1; stroke-dasharray: 2 4; opacity: .6; }
    .row { stroke: #888; stroke-width: 1; opacity: .25; }
    .small { font-size: 11px; }
    .columns { fill: #c2410c; } .functions { fill: #f59e0b; } .spark { fill: #0d9488; } .udf { fill: #5eead4; }
    .flink { fill: #6d28d9; } .bytewax { fill: #64748b; }
    @media (prefers-color-scheme: dark) {
      text { fill: #ccc; }
      .columns { fill: #fb923c; } .functions { fill: #fde047; } .spark { fill: #2dd4bf; } .udf { fill: #99f6e4; }
      .flink { fill: #a78bfa; } .bytewax { fill: #94a3b8; }
    }"""

Figures = dict[str, dict[str, dict[str, Any]]]


def by_query(run: dict[str, Any]) -> Figures:
    """The figures of a run, or the reasons why there are none, by query and form."""
    figures: Figures = {}
    for each in run["figures"]:
        figures.setdefault(each["query"], {})[each["form"]] = each
    return figures


def thousands(rate: float) -> str:
    """Writes a rate with two or three digits that count.

    >>> thousands(1_234_567), thousands(98_765), thousands(9_876)
    ('1,235 k', '99 k', '9.9 k')
    """
    return f"{rate / 1000:,.0f} k" if rate >= 10_000 else f"{rate / 1000:.1f} k"


def cell(figure: dict[str, Any] | None) -> str:
    return "–" if figure is None or "not" in figure else f"{thousands(figure['rate'])} · {figure['cpu']:.1f}"


def table(figures: Figures) -> str:
    """Rates and CPU seconds, a row for each query; what its UDF does stands beside what Spark does by itself."""
    shown = [form for form in FORMS if form != "udf" and any(form in each for each in figures.values())]
    lines = [f"| query | {' | '.join(FORMS[form] for form in shown)} |", "|---" * (len(shown) + 1) + "|"]
    for query, forms in figures.items():
        cells = [cell(forms.get(form)) for form in shown]
        if "udf" in forms:
            cells[shown.index("spark")] += f"<br>UDF: {cell(forms['udf'])}"
        lines.append(f"| {query} {TITLES[query]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reasons(figures: Figures) -> str:
    """Says why cells are empty: forms, and the queries that they do not have."""
    told = [
        f"{FORMS[form]} has no {query}: {forms[form]['not']}."
        for form in FORMS
        for query, forms in figures.items()
        if "not" in forms.get(form, {})
    ]
    return " ".join(told)


def plot(run: dict[str, Any], figures: Figures) -> str:
    """A row for each query and a dot for each form, by events a second, on a logarithmic scale."""
    rates = [each["rate"] for forms in figures.values() for each in forms.values() if "rate" in each]
    least, most = log10(min(rates)) - 0.1, log10(max(rates)) + 0.1
    bottom = TOP + ROW * len(figures)

    def x(rate: float) -> float:
        return LEFT + (RIGHT - LEFT) * (log10(rate) - least) / (most - least)

    parts = []
    for step in (base * 10**power for power in range(2, 8) for base in (1, 2, 5)):
        if least <= log10(step) <= most:
            parts.append(f'<path class="tick" d="M{x(step):.1f} {TOP - 6}V{bottom}"/>')
            parts.append(_text(x(step), bottom + 16, thousands(step), "middle"))
    present = [form for form in FORMS if any("rate" in forms.get(form, {}) for forms in figures.values())]
    for place, form in enumerate(present):
        at, line = LEFT + 175 * (place % 3), 22 + 18 * (place // 3)
        parts.append(
            f'<circle class="{form}" cx="{at}" cy="{line - 4}" r="5"/>{_text(at + 10, line, FORMS[form], "start")}'
        )
    for number, (query, forms) in enumerate(figures.items()):
        y = TOP + ROW * number + ROW / 2
        parts.append(_text(LEFT - 12, y + 4, f"{query} {TITLES[query]}", "end"))
        parts.append(f'<path class="row" d="M{LEFT} {y}H{RIGHT}"/>')
        for form in present:
            if "rate" in (figure := forms.get(form, {})):
                told = f"<title>{query}, {FORMS[form]}: {thousands(figure['rate'])}</title>"
                parts.append(f'<circle class="{form}" cx="{x(figure["rate"]):.1f}" cy="{y}" r="5">{told}</circle>')
    note = f"events a second (logarithmic), {run['date'][:10]}, 2 cores, load before {run['load']}"
    parts.append(_text((LEFT + RIGHT) / 2, bottom + 36, note, "middle"))
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {bottom + 48}" width="740" height="{bottom + 48}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img" aria-labelledby="title">\n'
        '  <title id="title">Events a second of each query of Nexmark, by system</title>\n'
        f"  <style>{STYLE}\n  </style>\n  {body}\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def main(file: str) -> None:
    run = json.loads(Path(file).read_text("utf-8").strip().splitlines()[-1])
    figures = by_query(run)
    PICTURE.write_text(plot(run, figures), "utf-8")
    rows = round(max(each.get("batch", 0) for each in run["figures"]), -4)
    batches = f"in batches of some {rows:,} events"
    when = f"Measured on {run['date'][:10]}, {batches}; the load before it began was {run['load']}."
    picture = "![events a second of each query, by system](docs/nexmark.svg)"
    parts = [BEGIN, table(figures), picture, textwrap.fill(f"{when} {reasons(figures)}", 100), END]
    page = README.read_text("utf-8")
    part = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not part.search(page):
        raise SystemExit(f"the README has no {BEGIN}")
    README.write_text(part.sub(lambda _: "\n\n".join(parts), page), "utf-8")
    print(f"{README}\n{PICTURE}")


if __name__ == "__main__":
    main(*sys.argv[1:])
