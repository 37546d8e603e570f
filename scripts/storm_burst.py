"""Runs the fraud check of examples/storm_fraud.py and draws its burst: views a second, and how long they took.

    scripts/with-java .venv/bin/python scripts/storm_burst.py [SECONDS] [FILE]

prints what the example prints, and writes the picture that docs/storm.md shows. Nothing else should run meanwhile.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "examples"))

import storm_fraud  # noqa: E402
from storm_fraud import BEGINS, LASTS, PERIOD, Sample  # noqa: E402

LEFT, RIGHT = 70, 710
STYLE = """
    text { fill: #444; }
    .tick { stroke: #888; stroke-width: 1; stroke-dasharray: 2 4; opacity: .6; }
    .burst { fill: #c2410c; fill-opacity: .12; }
    .line { fill: none; stroke-width: 2; }
    .emitted { stroke: #c2410c; }
    .acked { stroke: #0d9488; }
    .small { font-size: 11px; }
    @media (prefers-color-scheme: dark) {
      text { fill: #ccc; }
      .burst { fill: #fb923c; fill-opacity: .18; }
      .emitted { stroke: #fb923c; }
      .acked { stroke: #2dd4bf; }
    }"""


class Panel:
    """A plot of lines over seconds, from `top` to `bottom` of the picture; `first` and `last` are its ends."""

    def __init__(self, top: int, bottom: int, first: float, last: float, steps: list[float], unit: str) -> None:
        self.top, self.bottom, self.first, self.last = top, bottom, first, last
        self.highest = steps[-1]
        self.parts: list[str] = []
        for begins in range(BEGINS, int(last), PERIOD):
            if begins >= first:
                left, right = self.x(begins), self.x(min(begins + LASTS, last))
                self.parts.append(
                    f'<rect class="burst" x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}"/>'
                )
        for step in steps:
            y = self.y(step)
            self.parts.append(f'<path class="tick" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
            self.parts.append(self.text(LEFT - 8, y + 4, f"{step:,g}{unit}", "end"))

    def x(self, seconds: float) -> float:
        return LEFT + (RIGHT - LEFT) * (seconds - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self.highest

    def line(self, kind: str, points: list[tuple[float, float]]) -> None:
        way = "L".join(f"{self.x(seconds):.1f} {self.y(value):.1f}" for seconds, value in points)
        self.parts.append(f'<path class="line {kind}" d="M{way}"/>')

    @staticmethod
    def text(x: float, y: float, text: str, anchor: str) -> str:
        return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def steps_to(highest: float) -> list[float]:
    """Round numbers from nothing up to one that is no less: three to six of them.

    >>> steps_to(47_000), steps_to(0.9)
    ([0, 10000, 20000, 30000, 40000, 50000], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    """
    step = next(m * 10**e for e in range(-2, 7) for m in (1, 2, 5) if 5 * m * 10**e >= highest)
    count = int(-(-highest // step))
    return [round(step * number, 6) for number in range(count + 1)]


def picture(samples: list[Sample], load: float) -> str:
    first, last = samples[0].seconds, samples[-1].seconds
    highest = max(max(sample.emit_rate, sample.ack_rate) for sample in samples)
    rates = Panel(40, 200, first, last, steps_to(highest), "/s")
    rates.line("emitted", [(sample.seconds, sample.emit_rate) for sample in samples])
    rates.line("acked", [(sample.seconds, sample.ack_rate) for sample in samples])
    took = [(sample.seconds, sample.latency) for sample in samples if sample.latency is not None]
    times = Panel(240, 330, first, last, steps_to(max(latency for _, latency in took)), " s")
    times.line("acked", took)
    seconds = [
        Panel.text(times.x(each), 348, f"{each} s", "middle")
        for each in range(10 * -(-int(first) // 10), int(last) + 1, 10)
    ]
    lines = "\n  ".join([*rates.parts, *times.parts, *seconds])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 360" width="740" height="360" \
font-family="system-ui, sans-serif" font-size="13" role="img" aria-labelledby="title">
  <title id="title">Page views a second, and from emit to ack, before, in and after a burst (load {load:.1f})</title>
  <style>{STYLE}
  </style>
  <text x="{LEFT}" y="24">views emitted (orange) and acked (green) a second</text>
  <text x="{LEFT}" y="228">from emit to ack, on average</text>
  {lines}
</svg>
"""


def main(seconds: float = 60, file: str = str(ROOT / "docs" / "storm-burst.svg")) -> None:
    say: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: E731
    load = os.getloadavg()[0]
    say(f"load of the machine before it began: {load:.1f}")
    samples = [sample for sample in storm_fraud.run(seconds, say) if sample.seconds >= BEGINS - 12]
    Path(file).write_text(picture(samples, load))
    say(f"load after it: {os.getloadavg()[0]:.1f}; wrote {file}")


if __name__ == "__main__":
    asked = sys.argv[1:]
    main(*map(float, asked[:1]), *asked[1:])
