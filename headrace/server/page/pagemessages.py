"""Messages that a page may send over its connection. All others are refused before NiceGUI reads them.

They are in the protocol of Socket.IO: a digit for the kind of packet, another for the kind of message, and JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

GREETING: Final = "40"
"""The message with which a page connects, once."""

_SIGNALS: Final = ("3", "41", "1")  # the answer to a ping, and two ways to say goodbye
_EVENT: Final = "42"
_UNUSED: Final = ("log",)  # sent by NiceGUI's own script; a page has no business in the log of the server


class BadMessage(ValueError):
    """A message that no page sends."""


def read_message(text: str, client_id: str) -> str | None:
    """Returns what NiceGUI shall read of a message from a client's page; None if nothing.

    It is written anew, so that NiceGUI reads what was checked and nothing beside it.

    >>> read_message('42["ack", {"client_id": "c1", "next_message_id": 7, "more": 1}]', "c1")
    '42["ack",{"client_id":"c1","next_message_id":7}]'
    >>> read_message('42["ack", {"client_id": "c2", "next_message_id": 7}]', "c1")
    Traceback (most recent call last):
        ...
    headrace.server.page.pagemessages.BadMessage: a page speaks of itself only
    """
    if text in _SIGNALS:
        return text
    if not text.startswith(_EVENT):
        raise BadMessage("pages send events only")
    try:
        message = json.loads(text.removeprefix(_EVENT))
    except (ValueError, RecursionError):
        raise BadMessage("an event is JSON") from None
    if not (isinstance(message, list) and len(message) == 2 and isinstance(message[1], dict)):
        raise BadMessage("an event has a name and an object")
    name, sent = message
    if sent.get("client_id") != client_id:
        raise BadMessage("a page speaks of itself only")
    if name in _UNUSED:
        return None
    checks = {"event": _is_event, "ack": _is_ack}
    if not isinstance(name, str) or name not in checks:
        raise BadMessage("pages send no such event")
    if not checks[name](sent):
        raise BadMessage("an event has the fields that pages send")
    fields = ("id", "client_id", "listener_id", "args", "next_message_id")
    written = {field: sent[field] for field in fields if field in sent}
    return _EVENT + json.dumps([name, written], separators=(",", ":"))


def _is_event(sent: dict[str, Any]) -> bool:
    args = sent.get("args")
    return (
        type(sent.get("id")) is int
        and isinstance(sent.get("listener_id"), str)
        and isinstance(args, list)
        and all(arg is None or (isinstance(arg, str) and _is_json(arg)) for arg in args)
    )


def _is_ack(sent: dict[str, Any]) -> bool:
    return type(sent.get("next_message_id")) is int


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
