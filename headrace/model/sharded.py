"""Work by key that a dialect brings: pairs of one key meet in one shard, which has state and clocks; for streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Primitive


class Sharded(Primitive):
    """Sends pairs to shards by their keys, and does `work` there; `outputs` are its tags, each with its windowing.

    The work makes the processors of the shards, which get rows and clocks, and have their state as blocks (the
    protocols `Work` and `Processor` of `headrace.engine.shard.work`). It is sent to the workers.

    >>> import headrace as hr
    >>> from headrace.engine.shard.work import Grouping
    >>> from headrace.model.panes import GLOBAL
    >>> p = hr.Pipeline()
    >>> pairs = p | hr.TestStream().add([("a", 1), ("a", 2)]).finish()
    >>> groups = pairs | Sharded(Grouping(GLOBAL), {None: GLOBAL}) | hr.Collect()
    >>> status = p.run(stream=True).wait()
    >>> list(groups)
    [('a', [1, 2])]
    """

    def __init__(self, work: Any, outputs: Mapping[str | None, Windowing]) -> None:
        if not all(callable(getattr(work, name, None)) for name in ("processor", "bundles", "identity", "describe")):
            raise PipelineError(
                f"Sharded takes work that makes processors of shards, with processor, bundles, identity and describe, "
                f"got {work!r}"
            )
        self.work, self.windowings = work, dict(outputs)
        self.outputs = tuple(outputs)

    def default_label(self) -> str:
        return f"Sharded({type(self.work).__name__})"

    def functions(self) -> tuple[object, ...]:
        return (self.work,)

    def windowing_of(self, tag: str | None, inputs: tuple[PCollection, ...]) -> Windowing:
        return self.windowings.get(tag, GLOBAL)  # it may have no outputs
