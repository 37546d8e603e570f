"""Open pages: how many one session, one token and all may have; those that never connect make room for others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from headrace.server.http.refusals import Refusal
from headrace.server.limits import Limits
from headrace.server.page import nicegui_internals
from headrace.server.page.pagesockets import VISITOR, Pace
from headrace.server.security.visitors import Visitor

# Loads of the page with one token: it takes tens of milliseconds to build one, during which nobody else is answered.
_LOADS: Final = 2  # a second, for long
_LOADS_AT_ONCE: Final = 100


class OpenPages:
    """The open pages of one server. `clock` returns the time in seconds since 1970."""

    def __init__(self, limits: Limits, *, has_tokens: bool, clock: Callable[[], float] = time.time) -> None:
        self.limits, self.clock = limits, clock
        self._has_tokens = has_tokens  # without, all are one visitor
        self._loads: dict[bytes, Pace] = {}  # by token

    def make_room(self, visitor: Visitor) -> None:
        """Makes room for one more page of a visitor, or refuses it."""
        token = visitor.grant().token
        if not self._loads.setdefault(token, Pace(_LOADS, _LOADS_AT_ONCE, self.clock)).allows():
            reason = f"{_LOADS_AT_ONCE} pages were loaded just now; from now on, {_LOADS} a second"
            raise Refusal(429, reason, headers={"Retry-After": "1"})
        owners = {client_id: scope[VISITOR] for client_id, scope in nicegui_internals.client_scopes()}  # oldest first
        of_visitor, of_token = Counter(owners.values()), Counter(owner.grant().token for owner in owners.values())
        of_session = [client_id for client_id, owner in owners.items() if owner == visitor]
        if self._has_tokens and len(of_session) >= self.limits.pages:
            competing = of_session
        elif self._has_tokens and of_token[token] >= self.limits.listeners // 2:
            competing = [each for each, owner in owners.items() if owner.grant().token == token]
        elif len(owners) >= self.limits.listeners:
            competing = list(owners)
        else:
            return
        waiting = [
            client_id
            for client_id in competing
            if not nicegui_internals.is_connected(client_id) and not nicegui_internals.is_expected(client_id)
        ]
        if not waiting:
            reason = f"{len(competing)} pages are open, as many as there may be; close one"
            raise Refusal(429, reason, headers={"Retry-After": "10"})
        # That of the visitor who has most, so that nobody can drive out the pages of others.
        nicegui_internals.delete_client(max(waiting, key=lambda client_id: of_visitor[owners[client_id]]))

    def sweep(self) -> None:
        """Forgets pages that have not connected in time, and those of sessions that are over.

        A page with a connection learns from that one that its session is over.
        """
        now = self.clock()
        for client_id, scope in nicegui_internals.client_scopes():
            is_late = nicegui_internals.age(client_id, now) > self.limits.page_seconds
            is_lost = is_late and not nicegui_internals.is_expected(client_id)
            is_over = "read" not in scope[VISITOR].scopes()
            if (is_lost or is_over) and not nicegui_internals.is_connected(client_id):
                nicegui_internals.delete_client(client_id)
