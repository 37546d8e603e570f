"""The outcomes of trees as records of the topic of outcomes: ackers write them, hosts of spouts read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TreeOutcomes:
    """The trees of one spout task that have ended, by the places of their tuples in the task's sequence.

    >>> outcomes = TreeOutcomes(2, acked=(4,), failed=(5,))
    >>> outcomes.record()
    {'spout': 2, 'acked': [4], 'failed': [5], 'timed_out': []}
    >>> TreeOutcomes.read(outcomes.record()) == outcomes
    True
    """

    spout: int
    acked: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    timed_out: tuple[int, ...] = ()

    def record(self) -> dict[str, Any]:
        """Returns its record."""
        return {
            "spout": self.spout,
            "acked": list(self.acked),
            "failed": list(self.failed),
            "timed_out": list(self.timed_out),
        }

    @staticmethod
    def read(record: Mapping[str, Any]) -> TreeOutcomes:
        """Reads the outcomes of a record."""
        return TreeOutcomes(
            record["spout"], tuple(record["acked"]), tuple(record["failed"]), tuple(record["timed_out"])
        )
