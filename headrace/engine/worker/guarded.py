"""Dead letters: elements a function failed on, told apart from the others without calling it twice or more slowly.

A function runs over a bundle at full speed until it fails; then it goes on behind the element it failed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.engine.worker.blame import blame, consumed, shortened_text
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import CallOp, ParDoOp, Tagged
from headrace.model.elementwise import DEAD_LETTERS, DeadLetter


@dataclass
class GuardedOp(CallOp):
    """An operator that gives what its function fails on as dead letters."""

    op: CallOp = field(kw_only=True)
    dead = DEAD_LETTERS

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        return guarded(self.op, bundle)


@dataclass
class GuardedParDoOp(ParDoOp):
    """A DoFn whose `process` may fail; its life cycle is that of any other."""

    dead = DEAD_LETTERS

    def processed(self, bundle: Bundle) -> Iterator[Tagged]:
        return guarded(self, bundle)


def guarded(op: CallOp, bundle: Bundle) -> Iterator[Tagged]:
    """What the operator gives of a bundle; of an element that its function fails on, a dead letter and nothing else."""
    results, failures = _called(op, bundle)
    good = bundle
    if failures:
        failed = np.array([position for position, _ in failures], np.int64)
        survivors = np.setdiff1d(np.arange(len(bundle.elements)), failed)
        good = bundle.take(survivors, [bundle.elements[i] for i in survivors.tolist()])
        letters = [_letter(op.label, bundle.elements[position], error) for position, error in failures]
        yield DEAD_LETTERS, bundle.take(failed, letters)
    if good.elements:
        with blame(op.label):
            yield from op.given(good, results)


def _called(op: CallOp, bundle: Bundle) -> tuple[list[Any], list[tuple[int, Exception]]]:
    """The results of all elements but those that fail, and where these are."""
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
    return DeadLetter(element, label, type(error).__name__, shortened_text(text))
