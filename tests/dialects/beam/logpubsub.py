"""The embedded log in Pub/Sub's place: what examples of Beam read from a topic, and where they write to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms import window
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Timestamp

from headrace.log import Log

EACH = 4
"""How many records a reader gives before it lets the rest wait."""


class _Offsets(RestrictionProvider):  # type: ignore[misc]
    """The records that a partition has."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def initial_restriction(self, place: tuple[str, int]) -> OffsetRange:
        topic, partition = place
        return OffsetRange(0, Log(self.folder).topic(topic).partition(partition).next_offset())

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, place: tuple[str, int], restriction: OffsetRange) -> int:
        size: int = restriction.size()
        return size


def ReadFromLog(folder: str, topic: str) -> Any:
    """Reads a topic, a few records at a time, as bytes with the times of their records."""

    class Records(beam.DoFn):  # type: ignore[misc]
        @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
        def process(
            self,
            place: tuple[str, int],
            tracker: Any = beam.DoFn.RestrictionParam(_Offsets(folder)),
            watermark: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
        ) -> Iterator[Any]:
            begin = tracker.current_restriction().start
            for record in Log(folder).topic(place[0]).read(place[1], begin):
                if record.offset == begin + EACH:
                    tracker.defer_remainder()
                    return
                if not tracker.try_claim(record.offset):
                    return
                time = Timestamp(micros=record.timestamp)
                watermark.set_watermark(time)
                yield window.TimestampedValue(record.value, time)

    places = [(topic, partition) for partition in range(len(Log(folder).topic(topic).partitions))]
    return _Read(places, Records())


class _Read(beam.PTransform):  # type: ignore[misc]
    def __init__(self, places: list[tuple[str, int]], records: beam.DoFn) -> None:
        super().__init__()
        self.places, self.records = places, records

    def expand(self, begin: Any) -> Any:
        return begin | beam.Create(self.places) | beam.ParDo(self.records).with_output_types(bytes)


class WriteToLog(beam.PTransform):  # type: ignore[misc]
    """Appends elements to a topic."""

    def __init__(self, folder: str, topic: str) -> None:
        super().__init__()
        self.folder, self.topic = folder, topic

    def expand(self, messages: Any) -> Any:
        folder, topic = self.folder, self.topic

        def append(message: Any) -> None:
            to = Log(folder).topic(topic)
            value = message if isinstance(message, bytes) else repr(message).encode()
            to.append(0, to.batch([value], timestamps=[0]))

        return messages | beam.Map(append)
