"""Finds queries that suddenly spike or dip, out of ten thousand: a model of each query's history, second by second.

    python examples/zeitgeist.py [QUERIES [SECONDS]]

searches -> Windower (by query) -> windows: how often, each second -> Detector (by query) -> anomalies

Two computations, each a stream of its own with its own checkpoint. The Windower closes a second when the low watermark
says that all its searches are there; the Detector predicts the next second and reports what is far from it. Searches
are made up, with spikes and dips at random places: the example ends with an error unless exactly those are found. It
draws two of them in out/zeitgeist.svg.
"""

import math
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from headrace import millwheel as mw
from headrace.log import Log

FRONTENDS = 2  # injectors, each of which has a part of the searches
LEARNING = 8  # seconds before which nothing is reported
SECOND = 1_000_000
QUIET = 5  # seconds without a search after which a query is forgotten
PLOT = Path("out/zeitgeist.svg")


class Windower(mw.Computation):
    """Counts the searches for a query in each second, also seconds without any."""

    inputs = {"searches": mw.key("query")}
    outputs = {"windows": "query"}
    counts = mw.Persistent(dict)  # by second, of those that are not complete
    quiet = mw.Persistent(int)  # seconds without searches

    def process_record(self, record):
        second = record.timestamp // SECOND
        self.counts[second] = self.counts.get(second, 0) + record.value["n"]
        self.set_timer(at=second + 1)

    def process_timer(self, timer):
        second = timer.timestamp // SECOND - 1
        count = self.counts.pop(second, 0)
        self.quiet = 0 if count else self.quiet + 1
        if self.quiet <= QUIET:
            self.produce("windows", {"query": timer.key, "second": second, "n": count})
            self.set_timer(after="1 second")


@dataclass(slots=True)
class Model:
    """What is known of a query: the level of its counts, and how many of them there were."""

    level: float = 0.0
    seen: int = 0

    def learn(self, count):
        """Moves the level towards a count."""
        self.seen += 1
        self.level += (count - self.level) * max(0.3, 1 / self.seen)


class Detector(mw.Computation):
    """Compares the counts of a query with the prediction of its model, which does not learn from what is far off."""

    inputs = {"windows": mw.key("query")}
    outputs = ("anomalies",)
    model = mw.Persistent(Model)

    def process_record(self, record):
        model, count = self.model, record.value["n"]
        kind = "spike" if count > 2 * model.level else "dip" if count < 0.5 * model.level else None
        if kind is None or model.seen < LEARNING:
            model.learn(count)
        else:
            self.produce("anomalies", {**record.value, "kind": kind, "predicted": round(model.level)})


class Searches:
    """Searches that are made up: each query has a level of its own that goes slowly up and down, with some noise."""

    def __init__(self, queries, seconds, seed=7):
        self.queries, self.seconds, self.seed = queries, seconds, seed
        rng = random.Random(seed)
        self.levels = [(rng.uniform(60, 300), rng.uniform(0, 2 * math.pi)) for _ in range(queries)]
        chosen = rng.sample(range(queries), max(2, queries // 200))
        places = [(query, rng.randrange(LEARNING + 1, seconds)) for query in chosen]
        self.events = {place: ("spike", "dip")[number % 2] for number, place in enumerate(places)}

    def count(self, query, second):
        """Returns how often a query is searched for in a second."""
        level, phase = self.levels[query]
        rng = random.Random(self.seed * 1_000_003 + query * 1_009 + second)
        count = level * (1 + 0.25 * math.sin(second / 10 + phase)) * rng.uniform(0.9, 1.1)
        kind = self.events.get((query, second))
        return round(count * {None: 1, "spike": 3 + rng.random(), "dip": 0.2 * rng.random()}[kind])

    def of(self, second):
        """Yields the searches of a second: the query, how often, and the time."""
        for query in range(self.queries):
            count = self.count(query, second)
            for part in range(FRONTENDS):
                if n := count // FRONTENDS + (part < count % FRONTENDS):
                    yield part, {"query": f"query {query}", "n": n}, second * SECOND + 977 * query % SECOND


def run(searches, directory, spark=None):
    """Runs the computations over searches; returns the anomalies and the counts of the windows."""
    with mw.Mill(directory, spark=spark) as mill:
        mill.run(Windower())
        mill.run(Detector())
        injectors = [mw.Injector("searches", log=mill.log, name=f"frontend-{part}") for part in range(FRONTENDS)]
        for second in range(searches.seconds):
            for part, value, timestamp in searches.of(second):
                injectors[part].send(value, timestamp=mw.Instant(timestamp))
            for injector in injectors:
                injector.advance(second + 1)
                injector.flush()
        while (mill.status("Detector").low_watermark or 0) < searches.seconds * SECOND:
            for name in ("Windower", "Detector"):
                mill.handle(name).wait(0.05)  # raises an error if it has failed
        print("\n".join(map(str, (mill.status("Windower"), mill.status("Detector")))))
        return tuple(values(mill.log, stream) for stream in ("anomalies", "windows"))


def values(log, stream):
    """Returns the values of a stream."""
    topic = Log(log).topic(stream)
    return [record.value for number in range(len(topic.partitions)) for record in topic.read(number)]


def draw(windows, anomalies, path):
    """Draws the counts of a query with a spike and of one with a dip, with the predictions they were judged by."""
    chosen = {each["kind"]: each for each in reversed(anomalies)}
    width, height = 640, 150
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(chosen)}">']
    parts.append("<style>text{font:12px sans-serif}path{fill:none;stroke:#36c;stroke-width:1.5}</style>")
    for row, (kind, each) in enumerate(sorted(chosen.items())):
        line = sorted((w["second"], w["n"]) for w in windows if w["query"] == each["query"])
        most = max(max(n for _, n in line), each["predicted"])
        last = max(second for second, _ in line) or 1

        def place(second, n, row=row, most=most, last=last):
            return 40 + (width - 60) * second / last, row * height + 130 - 100 * n / most

        points = " L ".join(f"{x:.1f} {y:.1f}" for x, y in (place(*point) for point in line))
        x, y = place(each["second"], each["n"])
        _, predicted = place(each["second"], each["predicted"])
        parts += [
            f'<path d="M {points}"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#d33"/>',
            f'<circle cx="{x:.1f}" cy="{predicted:.1f}" r="4" fill="none" stroke="#888"/>',
            f'<text x="40" y="{row * height + 18}">a {kind} of {each["query"]} in second {each["second"]}: '
            f"{each['n']} searches a second, {each['predicted']} predicted</text>",
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>\n"]))


def main(queries="10000", seconds="24"):
    searches = Searches(int(queries), int(seconds))
    began = time.time()
    with tempfile.TemporaryDirectory() as directory:
        anomalies, windows = run(searches, directory)
    reported = {(int(each["query"].split()[1]), each["second"]): each["kind"] for each in anomalies}
    for each in sorted(anomalies, key=lambda each: (each["second"], each["query"]))[:8]:
        found = f"{each['n']:5} searches, {each['predicted']} predicted"
        print(f"{each['second']:4} s  {each['query']:12} {each['kind']:6} {found}")
    if reported != searches.events or len(anomalies) != len(reported):
        missed, wrong = searches.events.items() - reported.items(), reported.items() - searches.events.items()
        raise SystemExit(f"missed {sorted(missed)}, reported besides {sorted(wrong)}")
    draw(windows, anomalies, PLOT)
    print(
        f"all {len(reported)} spikes and dips of {queries} queries found, none besides, in {time.time() - began:.0f} s"
    )
    print(f"two of them are drawn in {PLOT}")


if __name__ == "__main__":
    import zeitgeist  # by its own name, which workers can import

    zeitgeist.main(*sys.argv[1:])
