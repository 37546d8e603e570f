"""The clause EMIT as triggers: when a window emits, and for how long it takes late rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from headrace.dialects.sql.grammar import After, Emit
from headrace.dialects.sql.intervals import interval_of
from headrace.dialects.sql.sqlerrors import error_at
from headrace.model.times import DAY
from headrace.model.triggers import (
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Repeatedly,
    Trigger,
)

FOREVER: Final = 36_500 * DAY
"""The lateness that is allowed where no EMIT limits it, in microseconds: a hundred years."""


@dataclass(frozen=True)
class Emission:
    """When the groupings of a query emit: a trigger, and how late rows may be, in microseconds.

    `inner` is the trigger of groupings whose results are grouped again. Results that are emitted once are final.
    """

    trigger: Trigger
    inner: Trigger
    lateness: int
    once: bool


ON_CHANGE: Final = Emission(Always(), Always(), FOREVER, once=False)
"""Without EMIT: results change with every micro-batch, and no row is too late."""


def emission_of(emit: Emit | None, text: str) -> Emission:
    """Returns when the results of a query are emitted."""
    if emit is None:
        return ON_CHANGE
    lateness = 0 if emit.args.get("lateness") is None else interval_of(emit.args["lateness"], text)
    phases = [list(phase.expressions) for phase in emit.args["phases"]]
    watermarks = [(number, each) for number, phase in enumerate(phases) for each in phase if _is_watermark(each)]
    if len(watermarks) > 1:
        raise error_at(emit, text, "EMIT has AFTER WATERMARK twice; the watermark passes the end of a window once")
    if not watermarks:
        if emit.args.get("lateness") is not None:
            raise error_at(
                emit, text, "WITH LATENESS counts from the watermark on; write EMIT AFTER WATERMARK WITH LATENESS ..."
            )
        return Emission(_repeated([_any(phase, text) for phase in phases]), Always(), FOREVER, once=False)
    at, watermark = watermarks[0]
    early = [*phases[:at], [each for each in phases[at] if each is not watermark]]
    before = [_any(phase, text) for phase in early if phase]
    after = [_any(phase, text) for phase in phases[at + 1 :]]
    if after and not lateness:
        raise error_at(emit, text, "what comes after the watermark is late; add WITH LATENESS INTERVAL '...' ...")
    late = _in_turn(after) if after else AfterCount(1) if lateness else None
    trigger = AfterWatermark(early=_in_turn(before) if before else None, late=late)
    inner = Always() if before else AfterWatermark(late=AfterCount(1) if lateness else None)
    return Emission(trigger, inner, lateness, once=not before and not lateness)


def _is_watermark(condition: exp.Expr) -> bool:
    return bool(condition.args["kind"] == "WATERMARK")


def _any(conditions: list[After], text: str) -> Trigger:
    triggers = [_trigger(each, text) for each in conditions]
    return triggers[0] if len(triggers) == 1 else AfterAny(*triggers)


def _in_turn(phases: list[Trigger]) -> Trigger:
    """Returns triggers that fire one after the other, the last of them again and again."""
    return phases[0] if len(phases) == 1 else AfterEach(*phases[:-1], Repeatedly(phases[-1]))


def _repeated(phases: list[Trigger]) -> Trigger:
    return Repeatedly(phases[0]) if len(phases) == 1 else _in_turn(phases)


def _trigger(condition: After, text: str) -> Trigger:
    value = condition.this
    try:
        match condition.args["kind"]:
            case "DELAY":
                return AfterProcessingTime(interval_of(value, text) / 1e6)
            case "COUNT":
                return AfterCount(int(value.name))
            case _:
                return AfterPercentile(float(value.name))
    except ValueError as error:
        raise error_at(condition, text, f"EMIT: {error}") from None
