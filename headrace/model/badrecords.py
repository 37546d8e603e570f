"""Bad records: what a source is to do with those it cannot read. What is meant only; the edges find them."""

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
"""What becomes of bad records: they are letters to nobody, or to who reads them; they end the run; or are counted."""

MALFORMED: Final = "malformed"
WRONG_TYPE: Final = "wrong type"
NO_TIME: Final = "no event time"
ABSURD_TIME: Final = "absurd event time"
REASONS: Final = (MALFORMED, WRONG_TYPE, NO_TIME, ABSURD_TIME)
"""Why a record is bad, the first that holds: it is none of its format; a field is not of its column's type; the event
time is missing or no time; it is not in the years 1 to 9999."""

YEAR_1: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * SECOND
YEAR_10000: Final = (int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) + 1) * SECOND
"""Event times are from the first of these on, and before the second: everybody can write those."""


class RecordSource(Primitive):
    """A source whose records may be bad: `bad` says what becomes of those."""

    bad: Bad = "dead_letters"
    handles_exceptions = False

    @property
    def checks(self) -> bool:
        """Whether a record can be bad at all."""
        return True

    def with_exception_handling(self) -> Self:
        """The same source with a further output `dead_letters`: a DeadLetter for each bad record; the other is `main`.

        Its element is the record as text, its error the reason, its position where it was read; it has no event time.

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
                f"{self.default_label()}: with bad={self.bad!r} there are no dead letters; leave it out, or "
                "with_exception_handling()"
            )
        if not self.checks:
            raise PipelineError(
                f"{self.default_label()}: none of its records can be bad, without event_time; leave out "
                "with_exception_handling()"
            )
        handling = copy.copy(self)
        handling.outputs, handling.handles_exceptions = ("main", DEAD_LETTERS), True
        return handling

    def checked_bad(self, bad: Bad) -> Bad:
        """What was given for `bad`, if it is one of them."""
        if bad not in get_args(Bad):
            raise PipelineError(
                f"{type(self).__name__}: bad says what becomes of bad records, 'dead_letters', 'fail' or 'skip'; "
                f"got {bad!r}"
            )
        return bad


@dataclass(frozen=True)
class BadRecords:
    """The bad records of a source: how many, by reason, and the last, unless they are skipped.

    >>> print(BadRecords({"malformed": 2}, DeadLetter("{", "visits", "malformed", "it is not a JSON object", "/in/a")))
    2 bad records (2 malformed), the last at /in/a: it is not a JSON object: '{'
    """

    counts: dict[str, int] = field(default_factory=dict)
    last: DeadLetter | None = None

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        by_reason = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())
        text = f"{self.count:,} bad record{'s' if self.count != 1 else ''} ({by_reason})"
        if self.last is None:
            return text
        return f"{text}, the last at {self.last.position}: {self.last.message}: {self.last.element!r:.200}"
