"""Offsets of a topic, and the progress of a view's speed layer through them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.views.errors import ViewError

Offsets = Mapping[int, int]
"""The first offset of each partition that is not included. A missing partition is at its beginning, 0."""


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch of a speed layer: its stream, its number in that stream, its offsets, and the watermark after it.

    >>> MicroBatch("s1", 7, since={0: 10}, until={0: 25}).until
    {0: 25}
    """

    stream: str
    number: int
    since: Offsets
    until: Offsets
    watermark: int | None = None

    def __post_init__(self) -> None:
        if not reaches(self.until, self.since):
            raise ViewError(f"micro-batch {self.number} ends at {self.until}, before its beginning, {self.since}")


@dataclass(frozen=True)
class Progress:
    """The progress of a view's speed layer: its last micro-batch, and the offsets that it has reached."""

    stream: str | None = None
    number: int = -1
    reached: Offsets | None = None
    watermark: int | None = None
    updated: int | None = None

    def accepts(self, batch: MicroBatch) -> bool:
        """Returns whether a micro-batch is new, or was added before. Refuses one that would count events twice.

        A stream may leave out micro-batches that have nothing for the view. Another stream must begin where it ended.

        >>> progress = Progress("s1", 7, {0: 25})
        >>> [progress.accepts(MicroBatch("s1", number, {0: 25}, {0: 30})) for number in (7, 8)]
        [False, True]
        >>> progress.accepts(MicroBatch("s2", 0, {0: 0}, {0: 30}))
        Traceback (most recent call last):
            ...
        headrace.views.errors.ViewError: micro-batch 0 of stream 's2' begins at {0: 0}, but the view has reached \
{0: 25}; begin the stream there
        """
        if self.reached is None:
            return True
        if batch.stream == self.stream:
            if batch.number <= self.number:
                return False
            follows = reaches(batch.since, self.reached)
        else:
            follows = reaches(batch.since, self.reached) and reaches(self.reached, batch.since)
        if not follows:
            raise ViewError(
                f"micro-batch {batch.number} of stream {batch.stream!r} begins at {dict(batch.since)}, but the view "
                f"has reached {dict(self.reached)}; begin the stream there"
            )
        return True


def reaches(reached: Offsets, wanted: Offsets) -> bool:
    """Returns whether `reached` is at or after `wanted` in every partition.

    >>> reaches({0: 5, 1: 1}, {0: 5}), reaches({0: 5}, {1: 1})
    (True, False)
    """
    return all(reached.get(partition, 0) >= offset for partition, offset in wanted.items())


def dump_offsets(offsets: Offsets) -> str:
    """Encodes offsets as JSON.

    >>> load_offsets(dump_offsets({0: 5}))
    {0: 5}
    """
    return json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})


def load_offsets(text: str) -> dict[int, int]:
    """Decodes what `dump_offsets` wrote."""
    return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
