"""Triggers of Beam's pipeline proto as Headrace's triggers.

What a trigger means is the same in both. A trigger that Headrace does not have is None here, and the collection is
grouped by Beam's own trigger driver (`driver.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from apache_beam.portability.api import beam_runner_api_pb2

from headrace.model import triggers
from headrace.model.triggers import Trigger


def to_trigger(proto: beam_runner_api_pb2.Trigger) -> Trigger | None:
    """Returns Headrace's trigger of a proto, None if it has none that means the same.

    >>> from apache_beam.transforms import trigger
    >>> beam = trigger.AfterWatermark(early=trigger.AfterProcessingTime(10), late=trigger.AfterCount(1))
    >>> to_trigger(beam.to_runner_api(None))
    AfterWatermark(early=AfterProcessingTime('10 s'), late=AfterCount(1))
    """
    kind = proto.WhichOneof("trigger")
    convert = _CONVERSIONS.get(kind)
    return None if convert is None else convert(getattr(proto, kind))


def _several(kind: Callable[..., Trigger]) -> Callable[[Any], Trigger | None]:
    def convert(proto: Any) -> Trigger | None:
        parts = [to_trigger(each) for each in proto.subtriggers]
        return None if not parts or None in parts else kind(*parts)

    return convert


def _after_watermark(proto: Any) -> Trigger | None:
    children = {}
    for name, field in (("early", "early_firings"), ("late", "late_firings")):
        if proto.HasField(field):
            children[name] = to_trigger(getattr(proto, field))
    return None if None in children.values() else triggers.AfterWatermark(**children)


def _after_processing_time(proto: Any) -> Trigger | None:
    delay = 0
    for transform in proto.timestamp_transforms:
        if transform.WhichOneof("timestamp_transform") != "delay":
            return None
        delay += transform.delay.delay_millis
    return triggers.AfterProcessingTime(timedelta(milliseconds=delay))


def _repeat(proto: Any) -> Trigger | None:
    child = to_trigger(proto.subtrigger)
    return None if child is None else triggers.Repeatedly(child)


def _or_finally(proto: Any) -> Trigger | None:
    main, until = to_trigger(proto.main), to_trigger(getattr(proto, "finally"))
    return None if main is None or until is None else triggers.OrFinally(main, until)


_CONVERSIONS: Final[dict[str | None, Callable[[Any], Trigger | None]]] = {
    "default": lambda _: triggers.DefaultTrigger(),
    "always": lambda _: triggers.Always(),
    "never": lambda _: triggers.Never(),
    "element_count": lambda proto: triggers.AfterCount(proto.element_count) if proto.element_count > 0 else None,
    "after_end_of_window": _after_watermark,
    "after_processing_time": _after_processing_time,
    "after_synchronized_processing_time": lambda _: triggers.AfterProcessingTime(0),
    "repeat": _repeat,
    "after_any": _several(triggers.AfterAny),
    "after_all": _several(triggers.AfterAll),
    "after_each": _several(triggers.AfterEach),
    "or_finally": _or_finally,
}
