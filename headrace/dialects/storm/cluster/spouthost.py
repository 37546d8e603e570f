"""Hosts of spouts: one for each task, with a thread of its own. What a spout emits goes to the log, nowhere else.

A host calls `next_tuple` while not too much is under way, and tells the spout what became of its tuples. A tuple that
failed is appended again, as it was, until that has been tried often enough; then it goes to the dead letters.
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

from headrace.dialects.storm.api.collectors import Emitted, ErrorReport, SpoutCollected
from headrace.dialects.storm.api.components import Spout, TopologyContext
from headrace.dialects.storm.api.topology import TopologyError
from headrace.dialects.storm.cluster.deadletters import DeadLetter, Outcome, shown
from headrace.dialects.storm.cluster.pending import Pending, Waiting
from headrace.dialects.storm.task.loggedtuple import WAKE, Emission, EmissionLog, Unwritable
from headrace.local.atomicfile import replace_file
from headrace.model.pickling import dumps

MOST_BEHIND: Final = 20_000
"""How many tuples of a spout task may be in the log that the stream has not read yet."""
_TURN: Final = 1000
"""How many tuples a turn emits at most, so that the first of them need not wait for long."""
_IDLE: Final = 0.01
"""Seconds until a spout that had nothing to emit is asked again."""


@dataclass
class Counts:
    """What a spout task has done since it was started."""

    emitted: int = 0
    acked: int = 0
    failed: int = 0
    replayed: int = 0
    dead: int = 0
    errors: int = 0
    timed: int = 0  # those of which it is known how long they took,
    latency: float = 0.0  # in seconds from emit to ack, in all
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))


class SpoutHost:
    """One spout task. `turn` does all that can be done now; `start` has a thread take one turn after the other.

    - read_to: tells the place up to which the stream has read the task's tuples; 0 until it has read any in this run
    - report: takes errors; bury: takes dead letters, with a number that grows and is the same if they come again
    - wakes: tells after how many microseconds it is to give cause for a micro-batch; None while nobody waits for time
    """

    def __init__(
        self,
        spout: Spout,
        context: TopologyContext,
        log: EmissionLog,
        folder: Path,
        *,
        read_to: Callable[[], int],
        report: Callable[[list[ErrorReport]], None],
        bury: Callable[[list[DeadLetter], int | None], None],
        clock: Callable[[], int],
        wakes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.spout, self.context, self.log, self.folder = spout, context, log, folder
        self.counts = Counts()
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self.active = True
        self.failure: BaseException | None = None
        self._held: tuple[int, int | None] = (0, None)  # for how long it was held back; since when it is, if it is now
        self._read_to, self._report, self._bury, self._clock = read_to, report, bury, clock
        self._wakes, self._appended = wakes, clock()
        self._told = False  # what the spout was told last: as in Storm, it is activated after `open`
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        topology, node = context.topology, context.component
        streams = topology.node(node).streams
        self._collected = SpoutCollected(node, context.task, streams, topology.direct_tasks(node))
        spout.context, spout._collected = context, self._collected
        folder.mkdir(parents=True, exist_ok=True)
        self.pending = Pending.load(self._pending_file)
        self.pending.sent(log.read(self.pending.emissions))
        if not context.config.acking:
            self.pending.waiting.clear()
        self._next = log.end()  # the place of the next record, which nobody else may take
        self._sent = self._next  # the place behind the last tuple
        self._began = self._next
        spout.open(context)
        self._restore()

    # Turns

    def turn(self) -> bool:
        """Takes in outcomes, replays, and lets the spout emit; tells whether there was anything to do."""
        did = self._take_outcomes()
        if self.active != self._told:
            self._told = self.active
            self._call(self.spout.activate if self.active else self.spout.deactivate)
        room = self.room() if self.active else 0
        self._hold_back(self.active and room <= 0)
        if room > 0:
            emitted = self._emitted(min(room, _TURN))
            if emitted:
                self._send(emitted)
                did = True
        self._report_errors()
        self._wake()
        return did

    def _wake(self) -> None:
        """Gives cause for a micro-batch: without one, time does not pass for those who wait for it."""
        wakes, end = self._wakes(), self._next
        if wakes is None or self._clock() - self._appended < wakes:
            return
        # A stream that was started where there is nothing to read has no micro-batch, and cannot tell where it is.
        if self._read_to() >= end or end == self._began:
            self._append([Emission(self.log.index, end, WAKE, ())])

    @property
    def behind(self) -> int:
        """How many tuples the stream has not read yet."""
        read = self._read_to()
        if read < self._began:  # it has not told yet, but what nobody waits for was read by an earlier run
            read = max(read, min([*self.pending.waiting.copy(), self._began]))
        return max(self._sent - read, 0)

    @property
    def settled(self) -> bool:
        """Whether it lets its spout emit no more, and nothing is under way: nor in a turn that began before that."""
        return not self._told and not len(self.pending) and not self.behind

    def room(self) -> int:
        """How many tuples may be emitted now."""
        most = self.context.config.max_spout_pending
        if not self._acking:
            return MOST_BEHIND - self.behind
        return min(max(MOST_BEHIND, most) - self.behind, most - len(self.pending))

    def _hold_back(self, held: bool) -> None:
        """Notes whether the spout may not emit because too much is under way."""
        total, since = self._held
        if held and since is None:
            self._held = total, self._clock()
        elif not held and since is not None:
            self._held = total + self._clock() - since, None

    @property
    def throttled(self) -> tuple[bool, int]:
        """Whether it is held back now, and for how many microseconds it was in all."""
        total, since = self._held  # at once: another thread may look
        return since is not None, total + (0 if since is None else self._clock() - since)

    def _emitted(self, most: int) -> list[Emitted]:
        """What the spout emits, called again and again until it has nothing more or has taken its time."""
        emitted: list[Emitted] = []
        began = self._clock()
        while len(emitted) < most and (now := self._clock()) - began < 20_000:
            self._collected.now = now
            fine = self._call(self.spout.next_tuple)
            some = self._collected.take()
            emitted += some
            if not some or not fine:
                break
        return emitted

    def _send(self, emitted: list[Emitted]) -> None:
        """Writes what was emitted to the log; what cannot be written fails."""
        try:
            self._append(self._placed(emitted))
        except Unwritable:
            emitted = [each for each in emitted if not self._refused(each)]
            if emitted:
                self._append(self._placed(emitted))
        self.counts.emitted += len(emitted)

    def _placed(self, emitted: list[Emitted]) -> list[Emission]:
        turns = Counter(self.pending.turns)
        emissions = []
        for sequence, each in enumerate(emitted, self._next):
            emissions.append(Emission.of(self.log.index, sequence, turns[each.stream], each))
            turns[each.stream] += 1
        return emissions

    def _refused(self, emitted: Emitted) -> bool:
        """Fails a tuple that cannot be written, and gives it up; its letter comes again if there is a crash now."""
        error = self.log.refusal(self._placed([emitted])[0])
        if error is None:
            return False
        self._collected.report(error)
        self.counts.failed += 1
        self.counts.dead += 1
        values, message = [shown(value) for value in emitted.values], shown(emitted.message_id)
        component, task = self.context.component, self.context.task
        self._bury([DeadLetter(component, task, tuple(values), message, 0, "unwritable", emitted.stream)], None)
        if emitted.message_id is not None:
            self._call(self.spout.fail, emitted.message_id)
        return True

    def _append(self, emissions: list[Emission]) -> None:
        time = self._appended = self._clock()
        self._keep_state(emissions[-1].sequence + 1)
        self.log.append(emissions, time=time)
        self._next = emissions[-1].sequence + 1
        self.pending.sent(emissions, time=time)
        if emissions[-1].stream != WAKE:
            self._sent = emissions[-1].sequence + 1
        if not self._acking:  # nobody will tell: as in Storm without ackers, it is as good as done
            for each in emissions:
                if self.pending.done(each.sequence) is not None:
                    self.counts.acked += 1
                    self._call(self.spout.ack, each.message_id)

    # Outcomes

    def _take_outcomes(self) -> bool:
        did = False
        while True:
            try:
                outcome = self.outcomes.get_nowait()
            except Empty:
                break
            if outcome.offset < self.pending.outcomes:
                continue  # it was taken in before the task was started again
            did = True
            for place in outcome.acked:
                if (done := self.pending.done(place)) is not None:
                    self._acked(done)
            ends = [(place, "failed") for place in outcome.failed] + [
                (place, "timed_out") for place in outcome.timed_out
            ]
            letters = [self._failed(place, why) for place, why in ends if place in self.pending.waiting]
            if dead := [letter for letter in letters if letter is not None]:
                self._bury(dead, outcome.offset)
            self.pending.outcomes = outcome.offset + 1
        if did:
            self._keep_what_was_told()
            self.pending.save(self._pending_file)
        return did

    def _keep_what_was_told(self) -> None:
        """Outcomes will not be told again: what the spout made of them is written down before that is."""
        if self._listens:
            if emitted := self._collected.take():
                self._send(emitted)
            else:
                self._keep_state(self._next)

    def _acked(self, done: Waiting) -> None:
        self.counts.acked += 1
        if done.since is not None:
            seconds = (self._clock() - done.since) / 1e6
            self.counts.timed += 1
            self.counts.latency += seconds
            self.counts.latest.append(seconds)
        self._call(self.spout.ack, done.message_id)

    def _failed(self, place: int, why: str) -> DeadLetter | None:
        """Replays a tuple or, if that was done often enough, gives it up. A spout with a `fail` of its own decides."""
        config, own = self.context.config, type(self.spout).fail is not Spout.fail
        waiting = self.pending.waiting[place]
        self.counts.failed += 1
        emission = self.log.one(place)
        replays = config.guarantee == "at_least_once" and not own
        if replays and waiting.attempt < config.max_retries:
            self.counts.replayed += 1
            self._append([emission.again(self._next, self.pending.turns[emission.stream])])
            return None
        self.pending.done(place)
        self._call(self.spout.fail, waiting.message_id)
        if own:
            return None
        self.counts.dead += 1
        component, task, attempts = self.context.component, self.context.task, emission.attempt + 1
        return DeadLetter(component, task, emission.values, emission.message_id, attempts, why, emission.stream)

    # The spout

    def _call(self, method: Callable[..., None], *arguments: Any) -> bool:
        """Calls the spout; an error of it is reported, and it goes on."""
        try:
            method(*arguments)
        except Exception as error:
            self._collected.now = self._clock()
            self._collected.report(error)
            return False
        return True

    def _report_errors(self) -> None:
        if self._collected.errors:
            errors, self._collected.errors = self._collected.errors, []
            self.counts.errors += len(errors) + self._collected.more_errors
            self._collected.more_errors = 0
            self._report(errors)

    @property
    def _acking(self) -> bool:
        return self.context.config.acking

    @property
    def _listens(self) -> bool:
        """Whether the spout does anything about outcomes."""
        kind = type(self.spout)
        return kind.ack is not Spout.ack or kind.fail is not Spout.fail

    @property
    def _pending_file(self) -> Path:
        return self.folder / "pending.json"

    # The spout's attributes, as they were when the tuples before a place had been emitted. The file is written before
    # the tuples; which of the files counts is told by how many tuples are in the log.

    def _keep_state(self, place: int) -> None:
        if state := self._state():
            replace_file(self._state_file(place), dumps(state))
            needed = {self._state_file(place), self._state_file(self._next)}
            for old in set(self.folder.glob("state-*")) - needed:
                old.unlink()

    def _restore(self) -> None:
        held = self._state_file(self._next)
        if held.exists():
            vars(self.spout).update(pickle.loads(held.read_bytes()))

    def _state_file(self, place: int) -> Path:
        return self.folder / f"state-{place}"

    def _state(self) -> dict[str, Any]:
        transient = {"context", "_collected", *self.spout.transient}
        return {name: value for name, value in vars(self.spout).items() if name not in transient}

    # The thread

    def start(self) -> None:
        """Begins to take turns."""
        name = f"{self.context.component}-{self.context.index}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the turn it is in, and closes the spout."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._call(self.spout.close)
        if self.failure is not None:
            return  # in the midst of a turn: what is written down is what it goes on with
        try:
            self.pending.save(self._pending_file)
            self._report_errors()
        except OSError as error:
            self.failure = self._unwritten(error)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if not self.turn():
                    self._stopping.wait(_IDLE)
        except OSError as error:
            self.failure = self._unwritten(error)
        except BaseException as error:  # the log is out of order: whoever asks is told
            self.failure = error

    def _unwritten(self, error: OSError) -> TopologyError:
        told = TopologyError(
            f"the spout {self.context.component!r}, task {self.context.task}, cannot write to its log or to "
            f"{str(self.folder)!r}: {error.strerror or error}; mend that, and submit the topology again: nothing is "
            "lost, it goes on where it was"
        )
        told.__cause__ = error
        return told
