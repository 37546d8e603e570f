"""Bad records: declares what a source does with records that it cannot read. The engine detects them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, Self, get_args

from headrace.model.elementwise import DEAD_LETTERS, DeadLetter
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Primitive
from headrace.model.times import SECOND

Bad = Literal["dead_letters", "fail", "skip"]
"""How a source treats bad records: as dead letters, as a failure that ends the run, or skipped and only counted."""

MALFORMED: Final = "malformed"
WRONG_TYPE: Final = "wrong type"
NO_TIME: Final = "no event time"
ABSURD_TIME: Final = "absurd event time"
REASONS: Final = (MALFORMED, WRONG_TYPE, NO_TIME, ABSURD_TIME)
"""Why a record is bad, by the first of these that applies: it is not valid in its format; a field does not have its
column's type; the event time is missing or is not a time; the event time is not in the years 1 to 9999."""

FAILED_EXPRESSION: Final = "failed expression"
"""Why a row is left out by a transform of columns that skips failures."""

YEAR_1: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * SECOND
YEAR_10000: Final = (int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) + 1) * SECOND
"""Valid event times are at or after the first of these and before the second: every format can write those."""


class RecordSource(Primitive):
    """A source whose records may be bad; `bad` says how it treats those."""

    bad: Bad = "dead_letters"
    handles_exceptions = False

    @property
    def checks(self) -> bool:
        """Whether any record can be bad."""
        return True

    @property
    def needs_records(self) -> bool:
        """Whether a run fails if all records are bad: unless the pipeline reads them, or says that it skips them."""
        return self.bad == "dead_letters" and not self.handles_exceptions

    @property
    def whereabouts(self) -> str:
        """A note on where its bad records are."""
        if self.handles_exceptions:
            return f"they are its output {DEAD_LETTERS!r}"
        return (
            "bad='skip' leaves them out"
            if self.bad == "skip"
            else f"with_exception_handling() gives them as {DEAD_LETTERS!r}"
        )

    def with_exception_handling(self) -> Self:
        """Returns this source with a second output `dead_letters`: a DeadLetter for each bad record.

        The first output is then called `main`. A dead letter's element is the record as text, its error is the reason,
        its position is where it was read; it has no event time.

        >>> import headrace as hr, pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.json")
        >>> _ = file.write_text('{"n": 1}\\n{"n": "two"}\\n')
        >>> with hr.Pipeline() as p:
        ...     rows = p | hr.ReadJson(str(file), schema="n long").with_exception_handling()
        ...     good, dead = rows.main | hr.Collect(), rows.dead_letters | hr.Collect()
        >>> list(good), dead[0].element, dead[0].error, dead[0].message, dead[0].position == str(file)
        ([Row(n=1)], '{"n": "two"}', 'wrong type', "'n' is no bigint: two", True)
        """
        if self.bad != "dead_letters":
            raise PipelineError(
                f"{self.default_label()}: with bad={self.bad!r} there are no dead letters; leave out either bad=... or "
                "with_exception_handling()"
            )
        if not self.checks:
            raise self.cannot_be_bad()
        handling = copy.copy(self)
        handling.outputs, handling.handles_exceptions = ("main", DEAD_LETTERS), True
        return handling

    def cannot_be_bad(self) -> PipelineError:
        """Returns the error of a source that is to handle bad records and has none."""
        return PipelineError(
            f"{self.default_label()}: without event_time, none of its records can be bad; leave out "
            "with_exception_handling()"
        )

    def checked_bad(self, bad: Bad) -> Bad:
        """Returns `bad` if it is valid, else raises."""
        if bad not in get_args(Bad):
            raise PipelineError(
                f"{type(self).__name__}: bad must be 'dead_letters', 'fail' or 'skip', got {bad!r}; it says how bad "
                "records are treated"
            )
        return bad


@dataclass(frozen=True)
class BadRecords:
    """The bad records of a source: their number by reason, the last one, unless they are skipped, and of how many.

    >>> print(BadRecords({"malformed": 2}, DeadLetter("{", "visits", "malformed", "it is not a JSON object", "/in/a")))
    2 bad records (2 malformed), the last at /in/a: it is not a JSON object: '{'
    """

    counts: dict[str, int] = field(default_factory=dict)
    last: DeadLetter | None = None
    records: int = 0  # that the source has read, good and bad

    @property
    def count(self) -> int:
        """The number of bad records, of all reasons."""
        return sum(self.counts.values())

    def line(self, label: str) -> str:
        """Says how many records of the source with this label were refused.

        >>> BadRecords({"malformed": 498, "wrong type": 2}, records=500).line("customers")
        "500 of 500 records of 'customers' were refused (malformed: 498, wrong type: 2)"
        """
        by_reason = ", ".join(f"{reason}: {count:,}" for reason, count in self.counts.items())
        were = "was" if self.count == 1 else "were"
        return f"{self.count:,} of {self.records:,} records of {label!r} {were} refused ({by_reason})"

    def summary(self, label: str) -> str:
        """Says how many records of the source with this label were refused, and shows the last one."""
        if self.last is None:
            return self.line(label)
        last = f"{self.last.message}: {self.last.element!r:.200}, at {self.last.position}"
        return f"{self.line(label)}, the last because {last}"

    def __str__(self) -> str:
        by_reason = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())
        text = f"{self.count:,} bad record{'s' if self.count != 1 else ''} ({by_reason})"
        if self.last is None:
            return text
        return f"{text}, the last at {self.last.position}: {self.last.message}: {self.last.element!r:.200}"
