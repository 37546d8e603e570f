"""Late outputs: what a grouping could not use any more, as a collection of its own. What is meant only."""

from __future__ import annotations

import copy
from typing import Final, Self

MAIN, LATE = "main", "late"
MAIN_AND_LATE: Final[tuple[str | None, ...]] = (MAIN, LATE)


class LateOutput:
    """A transform that groups, and may be asked for the elements that come too late for it."""

    outputs: tuple[str | None, ...] = (None,)

    def with_late_output(self) -> Self:
        """The same transform with two outputs: `main`, and `late`, the elements that came after their window was over.

        An element is late in each window it came too late for, and keeps its value, timestamp and window there. It is
        still counted as late. In a batch nothing is.

        >>> import headrace as hr
        >>> at = hr.TimestampedValue
        >>> script = hr.TestStream().add([at(("a", 1), 3)]).advance_watermark(60).add([at(("a", 5), 4)]).finish()
        >>> with hr.Pipeline() as p:
        ...     minutes = p | script | hr.WindowInto(hr.FixedWindows("1 minute"))
        ...     sums = minutes | hr.CombinePerKey(sum).with_late_output()
        ...     main, late = sums.main | "main" >> hr.Collect(), sums.late | "late" >> hr.Collect()
        >>> list(main), list(late)
        ([('a', 1)], [('a', 5)])
        """
        asked = copy.copy(self)
        asked.outputs = MAIN_AND_LATE
        return asked

    @property
    def has_late_output(self) -> bool:
        return self.outputs == MAIN_AND_LATE
