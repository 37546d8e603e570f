"""Back pressure: computes how much a micro-batch may read to take about as long as it should.

A pure function from how long batches took to the next limit. The caller chooses the unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

_GROWTH: Final = 2
"""A limit at most doubles from batch to batch; it falls as far as it must."""


@dataclass(frozen=True)
class Pace:
    """The limit of the next batch, in units of the source, for batches that take about `target` seconds.

    It begins low and doubles while batches are quicker than they should be; after one that was slower it is as much
    less as that took longer. A batch that read less than its limit changes nothing, unless it was too slow even so.

    >>> pace, limits = Pace(target=5.0), []
    >>> for units, took in [(1, 0.5), (2, 1.0), (4, 2.0), (8, 4.0), (10, 10.0), (3, 1.0)]:
    ...     pace = pace.after(units, took)
    ...     limits.append(pace.limit)
    >>> limits
    [2, 4, 8, 10, 5, 5]
    """

    target: float
    limit: int = 1
    most: int | None = None

    def after(self, units: int, took: float) -> Pace:
        """Returns the pace after a batch that read `units` and took `took` seconds."""
        if units <= 0 or (units < self.limit and took <= self.target):
            return self
        most = _GROWTH * self.limit
        fitting = min(units * self.target / took, most) if took > 0 else most
        # If there is time left, a unit more is tried: few of them would never get to be more otherwise.
        limit = math.ceil(fitting) if took < self.target else max(1, math.floor(fitting))
        return replace(self, limit=limit if self.most is None else min(limit, self.most))
