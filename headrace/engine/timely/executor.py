"""Runs the vertices of a graph in one process: delivers messages as they come, and notices as soon as they are safe.

Messages go before notices, in the order in which they were sent, and notices by epoch and time. So a run depends on
nothing but what was put in, and in which order. Whether a notice is safe is computed by `model/timely/progress.py`.
With several shards, messages to vertices of others are taken from here and received there; what others have told of
what is under way with them counts as if it were under way here.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.engine.shard.attributeblocks import Attributes
from headrace.engine.shard.attributestate import AttributeState
from headrace.engine.timely.vertexplaces import vertex_of
from headrace.model.errors import PipelineError
from headrace.model.pickling import dumps
from headrace.model.timely.antichains import Time, is_before
from headrace.model.timely.pathsummaries import FEEDBACK
from headrace.model.timely.progress import Pointstamp, Progress
from headrace.model.timely.vertexgraph import Graph, LoopContext, Stream, method_of

_LONGEST: Final = 200  # characters of a message in an error
_NO_STATE: Final = frozenset(["_calls"])  # what is set here
_WHOSE: Final = ("a vertex's state", "let {} be something that can be, or keep it in a module")


class Sent(NamedTuple):
    """A message of an output of a graph, and the time at which it was sent.

    >>> Sent("a", (0,))
    Sent(message='a', time=(0,))
    """

    message: Any
    time: Time


class Delivery(NamedTuple):
    """A message on its way: to which vertex of which stage, by which input."""

    stage: str
    vertex: int
    input: str
    message: Any
    time: Time


class Notice(NamedTuple):
    """A notice that a vertex waits for."""

    stage: str
    vertex: int
    time: Time


@dataclass(frozen=True)
class StageProgress:
    """Progress of a stage: the earliest times that may still come to it, and what holds its first notice back."""

    frontier: list[Time]
    notices: int
    next_notice: Time | None
    blockers: list[Pointstamp]


class Executor:
    """Runs a graph: messages are put into inputs, epochs are closed, and outputs are taken.

    >>> from headrace.model.timely.vertex import Vertex
    >>> class Total(Vertex):
    ...     def __init__(self):
    ...         self.totals = {}
    ...     def on_recv(self, message, time):
    ...         self.notify_at(time)
    ...         self.totals[time] = self.totals.get(time, 0) + message
    ...     def on_notify(self, time):
    ...         self.send(self.totals.pop(time), time)
    >>> graph = Graph()
    >>> executor = Executor(graph, {"totals": graph.stage(Total, graph.input("numbers"))})
    >>> executor.put("numbers", 3, 0); executor.put("numbers", 4, 0); executor.put("numbers", 5, 1)
    >>> executor.advance("numbers", 1)
    >>> executor.run(); executor.take("totals")
    [Sent(message=7, time=(0,))]
    """

    def __init__(self, graph: Graph, outputs: Mapping[str, Stream], shard: int = 0, shards: int = 1) -> None:
        self.graph, self._shard, self._shards = graph, shard, shards
        self.progress = Progress(graph.loops)
        self._vertices = {
            (name, number): stage.make()
            for name, stage in graph.stages.items()
            for number in range(shard, stage.vertices, shards)
        }
        self._methods: dict[tuple[str, int, str], Callable[[Any, Time], None]] = {
            (name, number, input_): getattr(vertex, method_of(input_))
            for (name, number), vertex in self._vertices.items()
            for input_ in graph.stages[name].inputs
        }
        self._order = {name: number for number, name in enumerate(graph.stages)}
        self._outputs: dict[tuple[str, str], list[str]] = {}
        for name, stream in outputs.items():
            self._outputs.setdefault((stream.node, stream.output), []).append(name)
        self._shape = (
            sorted(graph.inputs),
            [(each.name, each.vertices, each.inputs) for each in graph.stages.values()],
            sorted(graph.kinds.items()),
        )
        self._messages: deque[Delivery] = deque()
        self._notices: dict[int, dict[Notice, None]] = {}  # by epoch
        self._epochs: list[int] = []  # of notices, in order
        self._frontier: dict[str, int | None] = dict.fromkeys(graph.inputs, 0)  # None if the input has ended
        self._sent: dict[str, list[Sent]] = {name: [] for name in outputs}
        self._leaving: dict[int, list[Delivery]] = {}  # messages to other shards, by shard
        self._on_way: dict[int, Counter[Pointstamp]] = {}  # of those that were taken, and may not have arrived
        self._elsewhere: dict[int, Counter[Pointstamp]] = {}  # what is under way in other shards
        self._last_epoch = 0
        self._touched: set[tuple[str, int]] = set()
        self.counts: Counter[str] = Counter({"messages": 0, "notices": 0, "rounds": 0})
        self._called: Notice | None = None  # who is called, and at which time
        self._is_notice = False
        for name in graph.inputs:
            self.progress.add(name, (0,))
        for other in range(shards):
            if other != shard:
                self.hear(other, Counter((name, (0,)) for name in graph.inputs))
        self._states = {key: AttributeState(vertex, _NO_STATE, whose=_WHOSE) for key, vertex in self._vertices.items()}
        for key, vertex in self._vertices.items():
            vertex._calls = _VertexCalls(self, *key)

    def epoch(self, name: str) -> int | None:
        """Returns the earliest epoch of which an input may still get messages; None if it has ended."""
        if name not in self._frontier:
            known = ", ".join(map(repr, self._frontier))
            raise PipelineError(f"the graph has no input {name!r}; it has {known}")
        return self._frontier[name]

    def put(self, name: str, message: Any, epoch: int) -> None:
        """Puts a message into an input."""
        reached = self.epoch(name)
        if reached is None or epoch < reached:
            raise PipelineError(
                f"the input {name!r} is at {'its end' if reached is None else f'epoch {reached}'} and gets a message "
                f"of epoch {epoch}, which is closed; close an epoch once all of its messages are there"
            )
        self._last_epoch = max(self._last_epoch, epoch)
        self._route(name, "out", message, (epoch,), read=True)

    def advance(self, name: str, epoch: int | None) -> None:
        """Closes the epochs of an input before this one, or all: it has ended. Epochs that are closed stay so."""
        reached = self.epoch(name)
        if reached is None or (epoch is not None and epoch <= reached):
            return
        if epoch is not None:
            self.progress.add(name, (epoch,))
            self._last_epoch = max(self._last_epoch, epoch - 1)
        self.progress.remove(name, (reached,))
        self._frontier[name] = epoch

    def run(self) -> None:
        """Delivers messages and notices until there is nothing to deliver."""
        while self.step():
            pass

    def step(self) -> bool:
        """Delivers a message or, if there is none, a notice; returns False if there is neither."""
        if self._messages:
            stage, vertex, input_, message, time = self._messages.popleft()
            self.counts["messages"] += 1
            self._called, self._is_notice = Notice(stage, vertex, time), False
            self._call(lambda: self._methods[stage, vertex, input_](message, time), message)
        elif (notice := self._next_notice()) is not None:
            stage, vertex, time = notice
            del self._notices[time[0]][notice]
            if not self._notices[time[0]]:
                del self._notices[time[0]]
                del self._epochs[bisect_left(self._epochs, time[0])]
            self.counts["notices"] += 1
            self._called, self._is_notice = notice, True
            self._call(lambda: self._vertices[stage, vertex].on_notify(time))
        else:
            return False
        self.progress.remove(stage, time)
        return True

    def take(self, name: str) -> list[Sent]:
        """Returns what was sent to an output since it was last called."""
        sent, self._sent[name] = self._sent[name], []
        return sent

    def leaving(self) -> dict[int, list[Delivery]]:
        """Returns the messages to other shards since it was last called; they are under way until `arrived` is."""
        leaving, self._leaving = self._leaving, {}
        for shard, deliveries in leaving.items():
            self._on_way[shard] = Counter((each.stage, each.time) for each in deliveries)
        return leaving

    def arrived(self) -> bool:
        """Notes that messages to other shards, if any were taken, have arrived: those shards tell what came of them."""
        on_way, self._on_way = self._on_way, {}
        for stamps in on_way.values():
            for (node, time), count in stamps.items():
                self.progress.remove(node, time, count)
        return bool(on_way)

    def receive(self, deliveries: Iterable[Delivery]) -> None:
        """Takes messages of another shard in."""
        for each in deliveries:
            self._messages.append(each)
            self.progress.add(each.stage, each.time)

    def hear(self, shard: int, under_way: Counter[Pointstamp]) -> None:
        """Notes what is under way in another shard, in place of what it said before."""
        for (node, time), count in under_way.items():
            self.progress.add(node, time, count)
        for (node, time), count in self._elsewhere.get(shard, Counter()).items():
            self.progress.remove(node, time, count)
        self._elsewhere[shard] = under_way

    def under_way(self, to: int | None = None) -> Counter[Pointstamp]:
        """Returns what is under way here and could lead to messages, less the messages on their way to a shard."""
        found = Counter((each.stage, each.time) for of_epoch in self._notices.values() for each in of_epoch)
        found.update((each.stage, each.time) for each in self._messages)
        found.update((name, (epoch,)) for name, epoch in self._frontier.items() if epoch is not None)
        for shard, stamps in self._on_way.items():
            if shard != to:
                found.update(stamps)
        return found

    def status(self) -> dict[str, StageProgress]:
        """Returns how far each stage is, and what holds its notices back."""
        found = {}
        for name in self.graph.stages:
            waiting = sorted(
                {each.time for of_epoch in self._notices.values() for each in of_epoch if each.stage == name}
            )
            blockers = sorted(self.progress.blockers(name, waiting[0])) if waiting else []
            first = waiting[0] if waiting else None
            found[name] = StageProgress(self.progress.frontier(name), len(waiting), first, blockers)
        return found

    def _call(self, deliver: Callable[[], None], *message: Any) -> None:
        assert self._called is not None
        stage, vertex, time = self._called
        self._touched.add((stage, vertex))
        self._states[stage, vertex].touch()
        try:
            deliver()
        except Exception as error:
            of = f"of the message {_shown(message[0])}" if message else "of a notice"
            error.add_note(f"(vertex {vertex} of the stage {stage!r} at {time}, {of})")
            raise
        finally:
            self._called = None

    def _next_notice(self) -> Notice | None:
        if not self._epochs:
            return None
        # A stage is behind some input: what is as late as all of them waits for that one.
        frontier = list(self._frontier.values())
        latest = None if None in frontier else max(frontier)  # type: ignore[type-var]
        for epoch in self._epochs:
            if latest is not None and epoch >= latest:
                return None
            waiting = self._notices[epoch]
            for notice in sorted(waiting, key=self._turn) if len(waiting) > 1 else list(waiting):
                if self.progress.is_safe(notice.stage, notice.time):
                    return notice
        return None

    def _turn(self, notice: Notice) -> tuple[Time, int, int]:
        return notice.time, self._order[notice.stage], notice.vertex

    def _send(self, sender: Notice, output: str, message: Any, time: Time) -> None:
        stage = self.graph.stages[sender.stage]
        if output not in stage.outputs:
            known = ", ".join(map(repr, stage.outputs))
            raise PipelineError(f"{stage.name!r} sends by {output!r}; its outputs are {known}")
        self._check_time("sends", time)
        self._route(stage.name, output, message, time)

    def _route(self, node: str, output: str, message: Any, time: Time, *, read: bool = False) -> None:
        """Brings a message to the next stages: through what enters, leaves and goes round.

        What is `read` came to every shard that has vertices for it, so each brings it to its own only.
        """
        for name in self._outputs.get((node, output), ()) if not (read and self._shard) else ():
            self._sent[name].append(Sent(message, time))
        for connector in self.graph.receivers.get((node, output), ()):
            receiver = connector.receiver
            kind = self.graph.kinds.get(receiver)
            if kind is None:
                vertex = vertex_of(self.graph, connector, message)
                delivery, shard = Delivery(receiver, vertex, connector.input, message, time), vertex % self._shards
                if shard == self._shard:
                    self._messages.append(delivery)
                elif not read:
                    self._leaving.setdefault(shard, []).append(delivery)
                else:
                    continue
                self.progress.add(receiver, time)
                continue
            onward = self.graph.loops.behind(receiver, len(time))(time)
            if kind == FEEDBACK and self._is_over(self.graph.within[receiver], onward[-1], message):
                continue
            self._route(receiver, "out", message, onward, read=read)

    def _is_over(self, loop: LoopContext, counter: int, message: Any) -> bool:
        if loop.iterations is not None:
            if counter >= loop.iterations:
                return True
        elif counter > loop.limit:
            some = ", ".join(_shown(each.message) for each in list(self._messages)[:3]) or "nothing else"
            raise PipelineError(
                f"{loop.name!r} has gone round {loop.limit} times, its limit, and {_shown(message)} still goes round; "
                f"on their way are {len(self._messages)} messages more, such as {some}; give loop(iterations=n), a "
                "larger limit, or vertices that send nothing once nothing changes"
            )
        self.counts["rounds"] = max(self.counts["rounds"], counter + 1)
        return False

    def _notify_at(self, time: Time) -> None:
        self._check_time("asks for a notice", time)
        assert self._called is not None
        if self._is_notice and time == self._called.time:
            raise PipelineError(
                f"{self._called.stage!r} asks for a notice of {time} in on_notify of that time; ask for a later one"
            )
        self._check_limits(time)
        notice = self._called._replace(time=time)
        if notice not in self._notices.get(time[0], ()):
            self._await(notice)
            self.progress.add(notice.stage, time)

    def _await(self, notice: Notice) -> None:
        epoch = notice.time[0]
        if epoch not in self._notices:
            insort(self._epochs, epoch)
            self._notices[epoch] = {}
        self._notices[epoch][notice] = None

    def _check_limits(self, time: Time) -> None:
        """Refuses notices that follow each other for ever."""
        assert self._called is not None
        loop = self.graph.stages[self._called.stage].context
        counters = list(time[1:])
        while loop is not None:
            limit = max(loop.limit, loop.iterations or 0)
            if counters.pop() > limit:
                raise PipelineError(
                    f"{self._called.stage!r} asks for a notice of {time}, beyond the limit of {loop.name!r}, "
                    f"{limit} rounds; ask only while there are messages, or give the loop a larger limit"
                )
            loop = loop.parent
        if all(each is None for each in self._frontier.values()) and time[0] > self._last_epoch + 1000:
            raise PipelineError(
                f"all inputs have ended after epoch {self._last_epoch}, but {self._called.stage!r} asks for a notice "
                f"of {time}, a thousand epochs later; ask for later epochs only while there are messages"
            )

    def _check_time(self, does: str, time: Any) -> None:
        called = self._called
        assert called is not None
        whole = isinstance(time, tuple) and len(time) == len(called.time) and all(type(each) is int for each in time)
        if not whole:
            raise PipelineError(
                f"{called.stage!r} {does} at {time!r}; times there are tuples of {len(called.time)} whole numbers, "
                f"such as {called.time}"
            )
        if not is_before(called.time, time):
            raise PipelineError(
                f"{called.stage!r} was called at {called.time} and {does} at {time}, back in time, where notices may "
                "have been given; use the time of the call or a later one"
            )

    def changes(self) -> list[bytes]:
        """Returns, as blocks, the state that has changed since the last call: of vertices, and what is under way."""
        touched, self._touched = self._touched, set()
        states = [(key, self._states[key].changed().blocks()) for key in sorted(touched)]
        return [self._under_way(), *(self._vertex_block(key, blocks) for key, blocks in states if blocks)]

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns, as blocks, the state of vertices in a range of hashes; what is under way has the hash 0."""
        states = [(key, state.whole().blocks(low, high)) for key, state in self._states.items()]
        under_way = [self._under_way()] if low == 0 else []
        return [*under_way, *(self._vertex_block(key, blocks) for key, blocks in states if blocks)]

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads blocks, in the order in which they were returned."""
        found: dict[tuple[str, int], list[bytes]] = {}
        for block in blocks:
            shape, key, state = pickle.loads(block)
            if shape != self._shape:
                raise PipelineError(
                    "the stored state is of another graph: its inputs, stages, numbers of vertices or loops are not "
                    "the ones that it was written with; begin with a new checkpoint"
                )
            if key is None:
                self._load_under_way(state)
            else:
                found.setdefault(key, []).extend(state)
        for key, state in found.items():
            self._states[key].apply(Attributes.read(state))
        self._touched = set()

    def _vertex_block(self, key: tuple[str, int], blocks: list[bytes]) -> bytes:
        return dumps((self._shape, key, blocks))

    def _under_way(self) -> bytes:
        notices = [tuple(each) for of_epoch in self._notices.values() for each in of_epoch]
        messages = [tuple(each) for each in self._messages]
        sent = {name: [tuple(each) for each in sent] for name, sent in self._sent.items()}
        shared = (self._on_way, self._elsewhere) if self._shards > 1 else ()
        state = (messages, notices, self._frontier, self._last_epoch, sent, dict(self.counts), *shared)
        return dumps((self._shape, None, state))

    def _load_under_way(self, state: Any) -> None:
        messages, notices, self._frontier, self._last_epoch, sent, counts, *shared = state
        self._on_way, self._elsewhere = shared or ({}, {})
        self._messages = deque(Delivery(*each) for each in messages)
        self._notices, self._epochs = {}, []
        for each in notices:
            self._await(Notice(*each))
        self._sent = {name: [Sent(*each) for each in sent.get(name, ())] for name in self._sent}
        self.counts = Counter(counts)
        self.progress = Progress(self.graph.loops, self._active())

    def _active(self) -> Iterator[tuple[Pointstamp, int]]:
        """Yields what is active: progress is not stored, since it follows from the rest."""
        for stamps in (self.under_way(), *self._elsewhere.values()):
            yield from stamps.items()


class _VertexCalls:
    """Takes what one vertex asks for."""

    def __init__(self, executor: Executor, stage: str, vertex: int) -> None:
        self._executor, self._vertex = executor, (stage, vertex)

    def send(self, output: str, message: Any, time: Time) -> None:
        self._executor._send(self._caller(), output, message, time)

    def notify_at(self, time: Time) -> None:
        self._caller()
        self._executor._notify_at(time)

    def _caller(self) -> Notice:
        called = self._executor._called
        if called is None or called[:2] != self._vertex:
            raise PipelineError(
                f"vertex {self._vertex[1]} of {self._vertex[0]!r} sends while it is not called; send and ask for "
                "notices within on_recv and on_notify alone"
            )
        return called


def _shown(message: Any) -> str:
    text = repr(message)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
