"""Beam's TestStream as Headrace's: every event is a step, and so a micro-batch.

A stream with several outputs is a script for each of them; where one has an event, the others have a step without
elements, so that their micro-batches stay together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apache_beam.coders import Coder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.testing import test_stream
from apache_beam.utils.timestamp import Duration, Timestamp

from headrace.dialects.beam.beamtimes import to_micros
from headrace.model.errors import PipelineError
from headrace.model.teststream import ScriptStep, TestStream
from headrace.model.times import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Script:
    """The events of a TestStream, as far as one of its outputs is concerned."""

    events: tuple[test_stream.Event, ...]
    tag: str | None

    def source(self, encode: Callable[[Any], bytes]) -> TestStream:
        """Returns the source of this output; its elements are bytes.

        >>> beam = test_stream.TestStream().add_elements(["a"]).advance_watermark_to(5).advance_processing_time(7)
        >>> source = Script(tuple(beam._events), None).source(str.encode)
        >>> [(step.elements, step.watermark, step.clock) for step in source.steps]
        [((b'a',), None, 0), ((), 5000000, 0), ((), None, 7000000), ((), 4611686018427387904, 7000000)]
        """
        steps, clock, watermark = list[ScriptStep](), 0, MIN_TIME
        for event in self.events:
            elements: tuple[bytes, ...] = ()
            times: tuple[int, ...] = ()
            low = None
            if isinstance(event, test_stream.ProcessingTimeEvent):
                clock += Duration.of(event.advance_by).micros
            elif event.tag == self.tag and isinstance(event, test_stream.ElementEvent):
                elements = tuple(encode(each.value) for each in event.timestamped_values)
                times = tuple(to_micros(each.timestamp) for each in event.timestamped_values)
            elif event.tag == self.tag:
                low = watermark = to_micros(Timestamp.of(event.new_watermark))
            steps.append(ScriptStep(elements, times, low, clock))
        if watermark < MAX_TIME:
            steps.append(ScriptStep((), (), MAX_TIME, clock))
        source = TestStream()
        source.steps = tuple(steps)
        return source


def scripts_of(pipeline: proto.Pipeline) -> dict[str, Script]:
    """Returns the scripts of a pipeline's TestStreams, by the collections that they give."""
    scripts: dict[str, Script] = {}
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn != common_urns.primitives.TEST_STREAM.urn:
            continue
        payload = proto.TestStreamPayload.FromString(transform.spec.payload)
        if payload.endpoint.url:
            raise PipelineError(
                f"{transform.unique_name!r}: a TestStream that a service feeds ({payload.endpoint.url}) cannot be "
                "replayed, and so cannot be a stream here; give it its events"
            )
        coder: Coder = PipelineContext(pipeline.components).coders[payload.coder_id]
        events = tuple(test_stream.Event.from_runner_api(event, coder) for event in payload.events)
        for tag, collection in transform.outputs.items():
            scripts[collection] = Script(events, None if tag == "None" else tag)
    return scripts
