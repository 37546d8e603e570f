"""WebSockets of uvicorn that log no addresses and no messages: those of pages hold the ids of their clients.

uvicorn and the library below it would log both, at the levels INFO and DEBUG.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


def drop_below(logger: logging.Logger, level: int) -> None:
    """Makes a logger drop records below a level, whatever level is set for it.

    >>> log = logging.getLogger("headrace.example"); drop_below(log, logging.WARNING); log.setLevel(logging.DEBUG)
    >>> bool(log.filter(log.makeRecord(log.name, logging.INFO, "", 0, "/?secret", (), None)))
    False
    """
    logger.addFilter(lambda record: record.levelno >= level)


_LOG: Final = logging.getLogger("headrace.server.sockets")
drop_below(_LOG, logging.WARNING)


class QuietSocketProtocol(WebSocketsSansIOProtocol):
    """The protocol of a WebSocket, which logs warnings and errors only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = self.conn.logger = _LOG
        self.conn.debug = False
