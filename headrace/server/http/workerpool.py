"""A pool of threads for work that blocks: it limits how many calls run at once and how long a request waits for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Protocol, TypeVar

from headrace.model.jsontext import PIECE
from headrace.server.http.gate import Gate
from headrace.server.http.jsonresponse import PiecesResponse
from headrace.server.http.refusals import Refusal

T = TypeVar("T")

_log = logging.getLogger("headrace.server")


class Answer(Protocol):
    """An answer in pieces."""

    @property
    def pieces(self) -> list[bytes]:
        """Its bytes."""


A = TypeVar("A", bound=Answer)


class WorkerPool:
    """Threads for one kind of work. A call whose client has given up goes on, and counts until it ends.

    `unsent` admits so many bytes of answers that wait to be sent.
    """

    def __init__(self, noun: str, threads: int, limit: int, seconds: float, unsent: Gate | None = None) -> None:
        self.gate, self.seconds, self._unsent = Gate(limit, noun), seconds, unsent
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"headrace-{noun}")

    async def run(self, work: Callable[[], T]) -> T:
        """Calls a function in a thread and returns its result; refused with 503 after the time limit."""
        result, places = await self._run(work)
        places.close()
        return result

    async def run_for_sending(self, work: Callable[[], A]) -> tuple[A, ExitStack]:
        """Calls a function that makes an answer. It counts until the answer is sent, which is to close the second."""
        answer, places = await self._run(work)
        size = sum(map(len, answer.pieces))
        if self._unsent is not None and size > PIECE:
            try:
                self._unsent.enter(size)
            except Refusal:
                places.close()
                raise
            places.callback(self._unsent.leave, size)
        return answer, places

    async def respond(self, work: Callable[[], PiecesResponse]) -> PiecesResponse:
        """Calls a function that makes a response. It counts until the response is sent, or cannot be."""
        response, places = await self.run_for_sending(work)
        response.on_end = places.close
        return response

    async def _run(self, work: Callable[[], T]) -> tuple[T, ExitStack]:
        """Calls a function in a thread; returns its result, and what gives its place at the gate back."""
        self.gate.enter()
        places = ExitStack()
        places.callback(self.gate.leave)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            places.close()
            raise
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.seconds), places
        except BaseException as error:
            future.add_done_callback(lambda done: _close_abandoned(done, places))
            if isinstance(error, TimeoutError):
                reason = f"this took longer than {self.seconds:g} seconds; ask for less at once"
                raise Refusal(503, reason) from None
            raise

    def close(self) -> None:
        """Starts no more calls; those that run may end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _close_abandoned(future: asyncio.Future[T], places: ExitStack) -> None:
    """Gives the place of a call back that nobody waits for any more.

    Writes to the log if it failed, unless it was refused, or the system has ended, as it has when all else ends.
    """
    places.close()
    error = None if future.cancelled() else future.exception()
    if error is not None and not isinstance(error, Refusal | ConnectionError):
        _log.warning("a call whose client had given up failed: %r", error)
