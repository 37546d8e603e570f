"""The limits of a server: how much one request may take, and how many may run at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.views import adhoc


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    - body_bytes, body_seconds: the size of a body, and how long it may take to arrive
    - body_lines: the lines of a body that is posted to a topic
    - queries, query_seconds: queries of the store at once, and how long a request waits for one
    - posts: requests to topics at once
    - answer_cells, answer_bytes: the size of an answer, of which every element of a list is a cell
    - unsent_bytes: of answers that wait for their clients to read them, all together; small ones do not count
    - send_seconds: in which time a client must take an answer, or 0.8 MB of a larger one, or the events that wait
    - statements, sql: SQL statements at once, and what each may use; sql_rows: rows of views that one may read
    - listeners, poll, heartbeat: open event streams, and open pages (whose connections may be twice as many), and the
      seconds between two polls of the store and between two heartbeats
    - pages: open pages of one session; one token has half as many as there are `listeners`; those that never connect
      make room for others, and end after page_seconds
    - event_bytes, events: the size of a message of a page, and how many a second it may send for long; ten times as
      many at once
    - connections, header_seconds: open connections (fewer if the process may not open so many files), and how long the
      head of a request may take to arrive; one connection too many closes one that waits for its client

    >>> Limits(body_bytes=1_000).body_bytes
    1000
    """

    body_bytes: int = 4 << 20
    body_seconds: float = 10
    body_lines: int = 100_000
    queries: int = 64
    query_seconds: float = 30
    posts: int = 16
    answer_cells: int = 1_000_000
    answer_bytes: int = 16 << 20
    unsent_bytes: int = 128 << 20
    send_seconds: float = 30
    statements: int = 2
    sql: adhoc.Limits = field(default_factory=adhoc.Limits)
    sql_rows: int = 200_000
    listeners: int = 100
    poll: float = 0.5
    heartbeat: float = 15
    pages: int = 20
    page_seconds: float = 30
    event_bytes: int = 64 << 10
    events: int = 20
    connections: int = 1_000
    header_seconds: float = 10
