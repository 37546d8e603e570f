"""The numbers of shards that exchanges have before and after a change, and so the names of upstreams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model.times import MIN_TIME


@dataclass(frozen=True)
class ShardCounts:
    """The numbers of shards that exchanges have before and after, by the exchange's number.

    Names of shards are those of upstreams, whose watermarks others wait for.

    >>> counts = ShardCounts({0: 2}, {0: 3})
    >>> counts.renamed(["events", "0/0", "0/1"])
    ['events', '0/0', '0/1', '0/2']
    >>> counts.lows({"events": 9, "0/0": 7, "0/1": 5})
    {'events': 9, '0/0': 5, '0/1': 5, '0/2': 5}
    """

    before: Mapping[int, int]
    after: Mapping[int, int]

    def renamed(self, names: Sequence[str]) -> list[str]:
        """Returns the names of the same upstreams afterwards."""
        return list(self.lows(dict.fromkeys(names, 0)))

    def lows(self, lows: Mapping[str, int]) -> dict[str, int]:
        """Returns the low watermarks of the same upstreams afterwards: of new shards, the least of those before."""
        after: dict[str, int] = {}
        for name, low in lows.items():
            if (exchange := self._exchange_of(name)) is None:
                after[name] = low
                continue
            for shard in range(self.after.get(exchange, 0)):  # none if it is gone
                new = f"{exchange}/{shard}"
                after[new] = min(low, after.get(new, low))
        return after

    def upstream(self, dumped: str, names: Sequence[str] | None = None) -> str:
        """Returns what `Upstream.dump` wrote with the names of shards afterwards.

        If there are `names`, it is of these alone; those that are new have not reported yet.
        """
        watermark, low, *others = json.loads(dumped)
        lows = self.lows(low)
        if names is not None:
            lows = {name: lows.get(name, MIN_TIME) for name in names}
            others = [{name: each for name, each in other.items() if name in lows} for other in others]
        return json.dumps([watermark, lows, *others], sort_keys=True)

    def _exchange_of(self, name: str) -> int | None:
        """Returns the exchange whose shard has this name; None if it is a source."""
        number, _, shard = name.partition("/")
        if not (number.isdecimal() and shard.isdecimal()):
            return None
        return int(number) if int(shard) < self.before.get(int(number), 0) else None
