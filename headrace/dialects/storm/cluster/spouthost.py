"""Spout hosts: run one task of a spout each, in a thread of its own. They write all tuples to the log.

A host calls `next_tuple` while not too many tuples are pending, and calls `ack` and `fail` with the outcomes. A tuple
that failed is appended again, unchanged, up to `max_retries` times; then it becomes a dead letter.
"""

from __future__ import annotations

import pickle
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from headrace.dialects.storm.api.collectors import SpoutOutputCollector, SpoutTuple
from headrace.dialects.storm.api.components import Spout, TopologyContext
from headrace.dialects.storm.api.failures import DeadLetter, ErrorReport
from headrace.dialects.storm.api.topology import TopologyError
from headrace.dialects.storm.cluster.deadlettertopic import json_or_repr
from headrace.dialects.storm.cluster.pending import PendingTuple, PendingTuples
from headrace.dialects.storm.cluster.spoutlog import SpoutLog, UnwritableTuple
from headrace.dialects.storm.task.loggedtuple import WAKE, LoggedTuple
from headrace.dialects.storm.task.treeoutcomes import TreeOutcomes
from headrace.local.atomicfile import replace_file
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import make_folder
from headrace.model.pickling import dumps

MAX_UNREAD: Final = 20_000
"""How many tuples of a spout task may be in the log that the stream has not read yet."""
_TURN_TUPLES: Final = 1000
"""How many tuples a turn emits at most, so that the first of them do not wait for long."""
_IDLE_SECONDS: Final = 0.01
"""The time until a spout that had nothing to emit is called again."""


@dataclass
class SpoutCounts:
    """The counts of a spout task since its last start."""

    emitted: int = 0
    acked: int = 0
    failed: int = 0
    replayed: int = 0
    dead: int = 0
    errors: int = 0
    timed: int = 0  # acked tuples whose latency is known
    latency: float = 0.0  # the sum of these, in seconds from emit to ack
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))


class SpoutHost:
    """Runs one spout task. `turn` does all that can be done now; `start` runs turns in a thread.

    - read_to: returns the place up to which the stream has read the task's tuples; 0 until it has read any in this run
    - report: appends errors
    - bury: appends dead letters, with a number that grows and is the same if they are appended again
    - wakes: returns after how many microseconds the host causes a micro-batch; None while nothing waits for time
    """

    def __init__(
        self,
        spout: Spout,
        context: TopologyContext,
        log: SpoutLog,
        folder: Path,
        *,
        read_to: Callable[[], int],
        report: Callable[[list[ErrorReport]], None],
        bury: Callable[[list[DeadLetter], int | None], None],
        clock: Callable[[], int],
        wakes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.spout, self.context, self.log, self.folder = spout, context, log, folder
        self.counts = SpoutCounts()
        self.outcomes: SimpleQueue[tuple[int, TreeOutcomes]] = SimpleQueue()
        self.active = True
        self.failure: BaseException | None = None
        self._throttled: tuple[int, int | None] = (0, None)  # for how long in all; and since when, if it is now
        self._read_to, self._report, self._bury, self._clock = read_to, report, bury, clock
        self._wakes, self._appended = wakes, clock()
        self._activated = False  # whether `activate` was called last: as in Storm, it is called after `open`
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        topology, node = context.topology, context.component
        streams = topology.node(node).streams
        self._collector = SpoutOutputCollector(node, context.task, streams, topology.direct_tasks(node))
        spout.context, spout._collector = context, self._collector
        make_folder(folder)
        self.pending = PendingTuples.load(self._pending_file)
        self.pending.add(log.read(self.pending.emissions))
        if not context.config.acking:
            self.pending.tuples.clear()
        self._next = log.end()  # the place of the next record: nobody else appends
        self._tuples_end = self._next  # the place after the last tuple
        self._start_place = self._next
        spout.open(context)
        self._restore_state()

    # Turns

    def turn(self) -> bool:
        """Applies outcomes, replays tuples and lets the spout emit; returns whether there was anything to do."""
        busy = self._take_outcomes()
        if self.active != self._activated:
            self._activated = self.active
            self._call(self.spout.activate if self.active else self.spout.deactivate)
        room = self.room() if self.active else 0
        self._note_throttled(self.active and room <= 0)
        if room > 0:
            emitted = self._next_tuples(min(room, _TURN_TUPLES))
            if emitted:
                self._send(emitted)
                busy = True
        self._report_errors()
        self._wake()
        return busy

    def _wake(self) -> None:
        """Causes a micro-batch, without which time does not pass for ticks and timeouts."""
        wakes, end = self._wakes(), self._next
        if wakes is None or self._clock() - self._appended < wakes:
            return
        # A stream that starts where there is nothing to read has no micro-batch, and does not report its place.
        if self._read_to() >= end or end == self._start_place:
            self._append([LoggedTuple(self.log.index, end, WAKE, ())])

    @property
    def unread(self) -> int:
        """The number of tuples that the stream has not read yet."""
        read = self._read_to()
        if read < self._start_place:  # not reported yet; but an earlier run has read what is not pending
            read = max(read, min([*self.pending.tuples.copy(), self._start_place]))
        return max(self._tuples_end - read, 0)

    @property
    def settled(self) -> bool:
        """Whether its spout is deactivated, and no tuple is pending or unread."""
        # Not `active`: a turn that began before it changed may still emit.
        return not self._activated and not len(self.pending) and not self.unread

    def room(self) -> int:
        """Returns how many tuples may be emitted now."""
        most = self.context.config.max_spout_pending
        if not self._acking:
            return MAX_UNREAD - self.unread
        return min(max(MAX_UNREAD, most) - self.unread, most - len(self.pending))

    def _note_throttled(self, throttled: bool) -> None:
        """Notes whether the spout may not emit because too many tuples are pending or unread."""
        total, since = self._throttled
        if throttled and since is None:
            self._throttled = total, self._clock()
        elif not throttled and since is not None:
            self._throttled = total + self._clock() - since, None

    @property
    def throttled(self) -> tuple[bool, int]:
        """Whether the spout is throttled now, and for how many microseconds it was in all."""
        total, since = self._throttled  # both at once: other threads read it
        return since is not None, total + (0 if since is None else self._clock() - since)

    def _next_tuples(self, most: int) -> list[SpoutTuple]:
        """Calls `next_tuple` again and again, until it emits nothing or has taken its time; returns the tuples."""
        emitted: list[SpoutTuple] = []
        began = self._clock()
        while len(emitted) < most and (now := self._clock()) - began < 20_000:
            self._collector.now = now
            fine = self._call(self.spout.next_tuple)
            tuples = self._collector.take()
            emitted += tuples
            if not tuples or not fine:
                break
        return emitted

    def _send(self, emitted: list[SpoutTuple]) -> None:
        """Writes tuples to the log; those that cannot be written fail."""
        try:
            self._append(self._placed(emitted))
        except UnwritableTuple:
            emitted = [tup for tup in emitted if not self._fail_unwritable(tup)]
            if emitted:
                self._append(self._placed(emitted))
        self.counts.emitted += len(emitted)

    def _placed(self, emitted: list[SpoutTuple]) -> list[LoggedTuple]:
        """Gives tuples the next places of the log."""
        turns = Counter(self.pending.turns)
        placed = []
        for sequence, tup in enumerate(emitted, self._next):
            placed.append(LoggedTuple.of(self.log.index, sequence, turns[tup.stream], tup))
            turns[tup.stream] += 1
        return placed

    def _fail_unwritable(self, emitted: SpoutTuple) -> bool:
        """Fails a tuple if it cannot be written. A crash now would append its dead letter again.

        Returns whether it was failed.
        """
        error = self.log.write_error(self._placed([emitted])[0])
        if error is None:
            return False
        self._collector.report(error)
        self.counts.failed += 1
        self.counts.dead += 1
        values, message = [json_or_repr(value) for value in emitted.values], json_or_repr(emitted.message_id)
        component, task = self.context.component, self.context.task
        self._bury([DeadLetter(component, task, tuple(values), message, 0, "unwritable", emitted.stream)], None)
        if emitted.message_id is not None:
            self._call(self.spout.fail, emitted.message_id)
        return True

    def _append(self, tuples: list[LoggedTuple]) -> None:
        time = self._appended = self._clock()
        end = tuples[-1].sequence + 1
        self._save_state(end)
        self.log.append(tuples, time=time)
        self._next = end
        self.pending.add(tuples, time=time)
        if tuples[-1].stream != WAKE:
            self._tuples_end = end
        if not self._acking:  # there will be no outcome: as in Storm without ackers, a tuple is acked at once
            for logged in tuples:
                if self.pending.remove(logged.sequence) is not None:
                    self.counts.acked += 1
                    self._call(self.spout.ack, logged.message_id)

    # Outcomes

    def _take_outcomes(self) -> bool:
        busy = False
        while True:
            try:
                offset, outcomes = self.outcomes.get_nowait()
            except Empty:
                break
            if offset < self.pending.outcomes:
                continue  # it was applied before the task was started again
            busy = True
            for place in outcomes.acked:
                if (acked := self.pending.remove(place)) is not None:
                    self._ack(acked)
            failures = [(place, "failed") for place in outcomes.failed]
            failures += [(place, "timed_out") for place in outcomes.timed_out]
            letters = [self._fail(place, why) for place, why in failures if place in self.pending.tuples]
            if dead := [letter for letter in letters if letter is not None]:
                self._bury(dead, offset)
            self.pending.outcomes = offset + 1
        if busy:
            self._save_after_outcomes()
            self.pending.save(self._pending_file)
        return busy

    def _save_after_outcomes(self) -> None:
        """Saves what the spout made of outcomes, before their place is saved: they do not come again."""
        if self._handles_outcomes:
            if emitted := self._collector.take():
                self._send(emitted)
            else:
                self._save_state(self._next)

    def _ack(self, acked: PendingTuple) -> None:
        self.counts.acked += 1
        if acked.since is not None:
            seconds = (self._clock() - acked.since) / 1e6
            self.counts.timed += 1
            self.counts.latency += seconds
            self.counts.latest.append(seconds)
        self._call(self.spout.ack, acked.message_id)

    def _fail(self, place: int, why: str) -> DeadLetter | None:
        """Replays a tuple; or gives it up after its last replay, or if the spout overrides `fail`.

        Returns the dead letter of a tuple that is given up, unless the spout overrides `fail`.
        """
        config, overrides_fail = self.context.config, type(self.spout).fail is not Spout.fail
        pending = self.pending.tuples[place]
        self.counts.failed += 1
        logged = self.log.one(place)
        replays = config.guarantee == "at_least_once" and not overrides_fail
        if replays and pending.attempt < config.max_retries:
            self.counts.replayed += 1
            self._append([logged.replay(self._next, self.pending.turns[logged.stream])])
            return None
        self.pending.remove(place)
        self._call(self.spout.fail, pending.message_id)
        if overrides_fail:
            return None
        self.counts.dead += 1
        component, task, attempts = self.context.component, self.context.task, logged.attempt + 1
        return DeadLetter(component, task, logged.values, logged.message_id, attempts, why, logged.stream)

    # The spout

    def _call(self, method: Callable[..., None], *arguments: Any) -> bool:
        """Calls the spout and reports an error of it; returns whether there was none."""
        try:
            method(*arguments)
        except Exception as error:
            self._collector.now = self._clock()
            self._collector.report(error)
            return False
        return True

    def _report_errors(self) -> None:
        if self._collector.errors:
            errors, self._collector.errors = self._collector.errors, []
            self.counts.errors += len(errors) + self._collector.more_errors
            self._collector.more_errors = 0
            self._report(errors)

    @property
    def _acking(self) -> bool:
        return self.context.config.acking

    @property
    def _handles_outcomes(self) -> bool:
        """Whether the spout overrides `ack` or `fail`."""
        kind = type(self.spout)
        return kind.ack is not Spout.ack or kind.fail is not Spout.fail

    @property
    def _pending_file(self) -> Path:
        return self.folder / "pending.json"

    # The state: the spout's attributes as they were when the tuples before a place had been emitted. A file is written
    # before its tuples; the number of tuples in the log decides which file is valid.

    def _save_state(self, place: int) -> None:
        if state := self._state():
            replace_file(self._state_file(place), dumps(state))
            needed = {self._state_file(place), self._state_file(self._next)}
            for old in set(self.folder.glob("state-*")) - needed:
                old.unlink()

    def _restore_state(self) -> None:
        file = self._state_file(self._next)
        if file.exists():
            vars(self.spout).update(pickle.loads(read_private(file)))

    def _state_file(self, place: int) -> Path:
        return self.folder / f"state-{place}"

    def _state(self) -> dict[str, Any]:
        transient = {"context", "_collector", *self.spout.transient}
        return {name: value for name, value in vars(self.spout).items() if name not in transient}

    # The thread

    def start(self) -> None:
        """Starts the thread."""
        name = f"{self.context.component}-{self.context.index}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread after its present turn, and closes the spout."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._call(self.spout.close)
        if self.failure is not None:
            return  # in the middle of a turn: the files are what the next start needs
        try:
            self.pending.save(self._pending_file)
            self._report_errors()
        except OSError as error:
            self.failure = self._write_failure(error)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if not self.turn():
                    self._stopping.wait(_IDLE_SECONDS)
        except OSError as error:
            self.failure = self._write_failure(error)
        except BaseException as error:  # the log is damaged: `status` and `check` report it
            self.failure = error

    def _write_failure(self, error: OSError) -> TopologyError:
        failure = TopologyError(
            f"the spout {self.context.component!r}, task {self.context.task}, cannot write to its log or to "
            f"{str(self.folder)!r}: {error.strerror or error}; correct that, and submit the topology again: nothing is "
            "lost, it continues where it was"
        )
        failure.__cause__ = error
        return failure
