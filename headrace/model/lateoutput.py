"""Late outputs: declares the elements that came too late for a grouping as a collection of their own."""

from __future__ import annotations

import copy
from typing import Final, Self

MAIN, LATE = "main", "late"
MAIN_AND_LATE: Final[tuple[str | None, ...]] = (MAIN, LATE)


class LateOutput:
    """Mixin of transforms that group: `with_late_output()` gives the elements that come too late."""

    outputs: tuple[str | None, ...] = (None,)

    def with_late_output(self) -> Self:
        """Returns this transform with two outputs: `main`, and `late` with the elements that came too late.

        An element is in `late` once for each window that had expired when it came, with its value, its timestamp and
        that window. It is still counted as late. In a batch no element is late.

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
        transform = copy.copy(self)
        transform.outputs = MAIN_AND_LATE
        return transform

    @property
    def has_late_output(self) -> bool:
        """Whether the transform has the output `late`."""
        return self.outputs == MAIN_AND_LATE
