"""Guarded operators: what a function fails on becomes a dead letter, without calling the function twice or slower.

A function runs over a bundle at full speed until it fails; then it goes on behind the element it failed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from headrace.engine.worker.blame import blame, consumed, shorten_text
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import CallOperator, Operator, Tagged
from headrace.engine.worker.sidevalues import SideResolver
from headrace.model.elementwise import DEAD_LETTERS, DeadLetter, SideInput


@dataclass
class GuardedOperator(Operator):
    """Runs an operator, and gives a dead letter and nothing else for an element that its function fails on."""

    guarded: CallOperator

    @property
    def dead_tag(self) -> str | None:
        return DEAD_LETTERS

    @property
    def side_inputs(self) -> Sequence[SideInput]:
        return self.guarded.side_inputs

    def bind(self, resolve: SideResolver) -> Self:
        return replace(self, guarded=self.guarded.bind(resolve))

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        with blame(self.label):
            results, failures = _called(self.guarded, bundle)
        good = bundle
        if failures:
            failed = np.array([position for position, _ in failures], np.int64)
            survivors = np.setdiff1d(np.arange(len(bundle.elements)), failed)
            good = bundle.take(survivors, [bundle.elements[i] for i in survivors.tolist()])
            letters = [_letter(self.label, bundle.elements[position], error) for position, error in failures]
            yield DEAD_LETTERS, bundle.take(failed, letters)
        if good.elements:
            with blame(self.label):
                yield from self.guarded.outputs(good, results)


def _called(op: CallOperator, bundle: Bundle) -> tuple[list[Any], list[tuple[int, Exception]]]:
    """Returns the results of all elements but those that fail, and the positions and errors of these."""
    results: list[Any] = []
    failures: list[tuple[int, Exception]] = []
    rest, at = bundle, 0
    while rest.elements:
        cursor = iter(rest.elements)
        calls = op.results(op.call.over(rest)(cursor))
        try:
            results.extend(calls)
        except Exception as error:
            # If not even the arguments could be made, the cursor has not moved.
            at += max(consumed(rest.elements, cursor), 1)
            failures.append((at - 1, error))
            rest = bundle.take(np.arange(at, len(bundle.elements)), bundle.elements[at:])
        else:
            break
    return results, failures


def _letter(label: str, element: Any, error: Exception) -> DeadLetter:
    try:
        text = str(error)
    except Exception as worse:
        text = f"<{type(error).__name__} whose text fails: {worse!r}>"
    return DeadLetter(element, label, type(error).__name__, shorten_text(text))
