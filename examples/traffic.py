"""Generates page views like those of a real site, for `demo.py`: skewed, in bursts, some late and some repeated.

Every run generates the same views, relative to the time at which it starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

COUNTRIES = ["DE", "FR", "GB", "IN", "JP", "BR", "US", "NG", "PL", "SE"]
SECTIONS = ["", "/blog", "/docs", "/shop", "/about"]

Event = dict[str, Any]


@dataclass(frozen=True)
class Traffic:
    """A generator of `rate` page views per second, and five times as many for ten seconds of each minute."""

    began: datetime
    rate: int = 400
    seed: int = 7

    def seconds(self) -> Iterator[list[Event]]:
        """Generates the views of each second, in the order in which they arrive."""
        random = np.random.default_rng(self.seed)
        second = 0
        while True:
            burst = 5 if 30 <= second % 60 < 40 else 1
            yield self._views(random, second, self.rate * burst)
            second += 1

    def _views(self, random: np.random.Generator, second: int, count: int) -> list[Event]:
        pages, people = skewed(random, 300, count), skewed(random, 5_000, count)
        countries, ms = skewed(random, len(COUNTRIES), count), random.lognormal(5, 0.6, count)
        # One view of thirty comes late: a phone was offline, for up to ten minutes.
        late = np.where(random.random(count) < 1 / 30, random.uniform(0, 600, count), 0)
        at = second - random.random(count) - late
        views = [
            {
                "user": f"user-{people[n]}",
                "page": f"{SECTIONS[pages[n] % len(SECTIONS)]}/{pages[n]}",
                "country": COUNTRIES[countries[n]],
                "ms": int(ms[n]),
                "at": (self.began + timedelta(seconds=float(at[n]))).astimezone(UTC),
            }
            for n in range(count)
        ]
        # One view of fifty is repeated: somebody pressed reload. It counts as a view of its own.
        repeated = ([view, dict(view)] if random.random() < 1 / 50 else [view] for view in views)
        return [view for copies in repeated for view in copies]


def skewed(random: np.random.Generator, items: int, count: int) -> np.ndarray:
    """Draws numbers from 0 to items - 1 by Zipf's law: k is k + 1 times as rare as 0."""
    weights = 1 / np.arange(1, items + 1)
    return random.choice(items, count, p=weights / weights.sum())
