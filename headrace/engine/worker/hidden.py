"""Names of the hidden columns that travel beside the user's own."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TIME: Final = "__time"
"""Event time, in microseconds."""
START: Final = "__start"
END: Final = "__end"
"""Bounds of the window, in microseconds."""

SIGN: Final = "__sign"
"""In rows for a table: -1 in a retraction, 1 in any other element."""
PANE_INDEX: Final = "__pane"
"""In rows for a table: the index of the pane."""

NOW: Final = "__now"
"""In a stream's source: the time of the micro-batch."""
LOW: Final = "__low"
"""In a stream's source: the watermark, in a row that is a report and no element; MIN_TIME in a row that is neither."""
PART: Final = "__part"
"""In a stream's source: the partition a row is from, if there are several."""
PUNCTUATION: Final = "__punctuation"
"""In a stream's source: the watermark that the producer sends with a row, if it does."""

BAD: Final = "__bad"
"""In a source whose records may be bad: what is wrong with a row, which then is no element; null in good rows."""
BAD_TYPE: Final = pa.struct([(name, pa.string()) for name in ("reason", "message", "position", "record")])

REJECTED: Final = "__rejected"
"""In a stream, where a transform of columns skips failures: which one failed on a row, and the row as text."""
REJECTED_TYPE: Final = pa.struct([(name, pa.string()) for name in ("label", "message", "record")])
