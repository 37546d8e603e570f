"""Page views as a site has them: a few pages and people are most of it, some views come late, some come twice.

Every run has the same views, from the time it begins at.
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
    """So many views a second, and five times as many for ten seconds of each minute."""

    began: datetime
    rate: int = 400
    seed: int = 7

    def seconds(self) -> Iterator[list[Event]]:
        """The views of each second, in the order in which they arrive."""
        random = np.random.default_rng(self.seed)
        second = 0
        while True:
            burst = 5 if 30 <= second % 60 < 40 else 1
            yield self._views(random, second, self.rate * burst)
            second += 1

    def _views(self, random: np.random.Generator, second: int, count: int) -> list[Event]:
        pages, people = skewed(random, 300, count), skewed(random, 5_000, count)
        countries, ms = skewed(random, len(COUNTRIES), count), random.lognormal(5, 0.6, count)
        # One of thirty comes late: a phone was offline, for up to ten minutes.
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
        # One of fifty looks like another: somebody pressed reload. It is a view all the same.
        return [each for view in views for each in ([view, dict(view)] if random.random() < 1 / 50 else [view])]


def skewed(random: np.random.Generator, items: int, count: int) -> np.ndarray:
    """Numbers from 0 on, of which k is k + 1 times as rare as 0."""
    weights = 1 / np.arange(1, items + 1)
    return random.choice(items, count, p=weights / weights.sum())
