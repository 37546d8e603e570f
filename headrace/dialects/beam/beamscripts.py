"""Beam's TestStream as Headrace's: every event is a step, and so a micro-batch.

A stream with several outputs is a script for each of them; where one has an event, the others have a step without
elements, so that their micro-batches stay together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from apache_beam.coders import Coder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_interactive_api_pb2, beam_interactive_api_pb2_grpc
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.testing import test_stream
from apache_beam.utils.timestamp import Duration, Timestamp

from headrace.dialects.beam.beamtimes import to_micros
from headrace.dialects.beam.compat import event_of
from headrace.model.errors import PipelineError
from headrace.model.teststream import ScriptStep, TestStream
from headrace.model.times import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Script:
    """The events of a TestStream, as far as one of its outputs is concerned."""

    events: tuple[test_stream.Event, ...]
    tag: str | None

    def source(self, encode: Callable[[Any], bytes], start: int = 0) -> TestStream:
        """Returns the source of this output, whose processing time begins at `start`; its elements are bytes.

        >>> beam = test_stream.TestStream().add_elements(["a"]).advance_watermark_to(5).advance_processing_time(7)
        >>> source = Script(tuple(beam._events), None).source(str.encode)
        >>> [(step.elements, step.watermark, step.clock) for step in source.steps]
        [((b'a',), None, 0), ((), 5000000, 0), ((), None, 7000000), ((), 4611686018427387904, 7000000)]
        """
        steps, clock, watermark = list[ScriptStep](), start, MIN_TIME
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
        coder: Coder = PipelineContext(pipeline.components).coders[payload.coder_id]
        if payload.endpoint.url:
            events = _served_events(transform.unique_name, payload.endpoint.url, list(transform.outputs), coder)
        else:
            events = tuple(test_stream.Event.from_runner_api(event, coder) for event in payload.events)
        for tag, collection in transform.outputs.items():
            scripts[collection] = Script(events, None if tag == "None" else tag)
    return scripts


def _served_events(name: str, endpoint: str, tags: list[str], coder: Coder) -> tuple[test_stream.Event, ...]:
    """Reads all events of a service before the stream begins, so that it can be replayed."""
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_interactive_api_pb2_grpc.TestStreamServiceStub(channel)
        request = beam_interactive_api_pb2.EventsRequest(output_ids=tags)
        try:
            events = [event_of(event, coder) for event in stub.Events(request)]
        except grpc.RpcError as error:
            raise PipelineError(
                f"{name!r}: the service that has its events, {endpoint}, cannot be read: {error}; start it before the "
                "pipeline, and let it end"
            ) from error
    for event in events:
        if not isinstance(event, test_stream.ProcessingTimeEvent) and event.tag in ("", "None"):
            event.tag = None
    return tuple(events)
