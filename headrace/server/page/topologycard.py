"""The card of one topology: its graph, charts, tasks, errors, dead letters, and buttons to command it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from nicegui import ui

from headrace.engine.plan.graphsvg import graph_svg
from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.dialogs import add_choices, button, confirm
from headrace.server.page.history import Measure
from headrace.server.page.listings import Cell, Listing, Number
from headrace.server.page.nicegui_internals import wait_for_dialog
from headrace.server.page.theme import chart, line
from headrace.server.page.topologygraph import topology_graph
from headrace.views.jsonencoding import encode_time

# A chart: its title, its unit, and its lines: measure, name, and whether it is dashed
_CHARTS: Final[tuple[tuple[str, str, tuple[tuple[Measure, str, bool], ...]], ...]] = (
    ("Tuples a second", "", (("emitted", "emitted", False), ("acked", "acked", True))),
    ("From emit to ack", " s", (("complete", "half of them at most", False), ("slowest", "99 of 100 at most", False))),
    ("Tuples that wait", "", (("pending", "under way", False), ("queued", "not read yet", False))),
)
_NUMBERS: Final = ("emitted", "executed", "acked", "failed", "errors")
_LIMIT: Final = 200  # errors and dead letters that are shown
_NO_ERRORS: Final = "No component has reported an error."
_NO_LETTERS: Final = "No tuple has been given up."


class TopologyCard:
    """Shows a topology and lets those who may command it."""

    def __init__(self, context: PageContext, name: str) -> None:
        self.context, self.name = context, name
        self._svg = ""
        self._topology: dict[str, Any] = {}
        self._shown_counts: object = None
        self._buttons: dict[str, ui.button] = {}
        with ui.element("section").classes("hr-card") as card:
            card.props["data-topology"] = name
            with ui.element("div").classes("hr-head"):
                ui.label(name).classes("hr-title")
                self._facts = ui.label("").classes("hr-muted hr-small")
                ui.element("div").classes("hr-space")
                if "admin" in context.scopes():
                    self._buttons = {
                        "activate": button("Activate", "play_arrow", partial(self._command, "activate")),
                        "deactivate": button("Deactivate", "pause", partial(self._command, "deactivate")),
                        "rebalance": button("Rebalance", "tune", self._rebalance),
                        "kill": button("Kill", "stop", self._kill),
                    }
            self._error = ui.label("").classes("hr-error")
            with ui.element("div").classes("hr-scroll"):
                self._graph = ui.html("").classes("hr-drawing")
        self._charts: list[ui.echart] = []
        with ui.element("div").classes("hr-charts"):
            for title, unit, _ in _CHARTS:
                with ui.element("section").classes("hr-card"):
                    ui.label(title).classes("hr-title")
                    self._charts.append(ui.echart(chart([], unit=unit), renderer="svg").classes("hr-chart"))
        with ui.element("section").classes("hr-card"):
            ui.label("Tasks").classes("hr-title")
            numbers = [field.capitalize() for field in _NUMBERS] + ["Execute", "Complete", "99%", "Queued", "Pending"]
            headers = map(Number, ("Task", *numbers, "Held back"))
            self._tasks = Listing(("Component", *headers), "It has no tasks.", name=f"tasks {name}")
        self._errors = _Table("Errors", ("Time", "Component", "Task", "Error"), _NO_ERRORS)
        self._letters = _Table(
            "Dead letters", ("Time", "Component", "Task", "Values", "Message id", "Attempts", "Why"), _NO_LETTERS
        )

    async def show(self, topology: dict[str, Any]) -> None:
        """Shows a status of the topology."""
        self._topology = topology
        took = topology["batch_seconds"]
        self._facts.set_text(
            f"{topology['state']} · {humantext.some(topology['batches'], 'micro-batch')}"
            + ("" if took is None else f", the last in {humantext.seconds(took)}")
            + f" · {humantext.some(topology['trees'], 'tree')} under way"
        )
        self._error.set_text(topology["error"] or "")
        self._error.set_visibility(bool(topology["error"]))
        possible = {"active": ("deactivate", "rebalance", "kill"), "inactive": ("activate", "rebalance", "kill")}
        state = topology["state"]
        for command, pressed in self._buttons.items():
            pressed.set_enabled(command in possible.get(state, ("kill",)) and state != "killed")
        graph = topology_graph(topology)
        svg = "".join(graph_svg(graph, across=across, of="The topology") for across in (True, False))
        if svg != self._svg:
            self._svg = svg
            self._graph.set_content(svg)
        for plotted, (_, _, lines) in zip(self._charts, _CHARTS, strict=True):
            points = self.context.poller.topology_history.points
            plotted.options["series"] = [
                line(text, points(measure, self.name), dashed=dashed) for measure, text, dashed in lines
            ]
            plotted.update()
        self._tasks.show([_task_cells(task) for task in topology["tasks"]])
        await self._show_failures(topology)

    async def _show_failures(self, topology: dict[str, Any]) -> None:
        """Shows errors and dead letters, which are read again only if there are others."""
        counts = [sum(task[field] for task in topology["tasks"]) for field in ("errors", "dead")]
        if counts == self._shown_counts:
            return
        topologies = self.context.service.topologies
        assert topologies is not None
        errors = await self.context.pool.run(lambda: topologies.errors(self.name, _LIMIT))
        letters = await self.context.pool.run(lambda: topologies.dead_letters(self.name, _LIMIT))
        self._shown_counts = counts
        self._errors.show([_error_cells(error) for error in reversed(errors)])
        self._letters.show([_letter_cells(letter) for letter in reversed(letters)])

    # Commands

    async def _command(self, command: str, **arguments: Any) -> None:
        done = await self.context.command(command, self.name, **arguments)
        if done is not None:
            under_way = "" if done else " is under way: what is begun is done first"
            ui.notify(f"{command} {self.name}{under_way}", type="positive")
            await self.context.poller.poll()

    async def _kill(self) -> None:
        question = "Its spouts emit no more, what is under way is done, and then its state is gone for good."
        if await confirm(f"Kill {self.name}?", question, "Kill"):
            await self._command("kill")

    async def _rebalance(self) -> None:
        components = self._topology["components"]
        bolts = {component["id"]: component["tasks"] for component in components if component["kind"] == "bolt"}
        with ui.dialog() as dialog, ui.element("div").classes("hr-card hr-dialog"):
            ui.label(f"Rebalance {self.name}").classes("hr-title")
            ui.label("What is under way is done first; then the state of bolts is shared out anew.").classes("hr-muted")
            fields = {
                bolt: ui.number(f"Tasks of {bolt}", value=tasks, min=1, precision=0).props("outlined dense")
                for bolt, tasks in bolts.items()
            }

            def changed() -> dict[str, int]:
                wanted = {bolt: int(field.value or 0) for bolt, field in fields.items()}
                return {bolt: tasks for bolt, tasks in wanted.items() if tasks != bolts[bolt]}

            add_choices(dialog, "Rebalance", changed)
        tasks: Any = await wait_for_dialog(dialog)
        if tasks:
            await self._command("rebalance", tasks=tasks)


class _Table:
    """Shows a long table of texts, or a sentence if it has no rows."""

    def __init__(self, title: str, names: tuple[str, ...], empty: str) -> None:
        with ui.element("section").classes("hr-card"):
            ui.label(title).classes("hr-title")
            columns = [{"name": name, "label": name, "field": name, "align": "left"} for name in names]
            self._table = ui.table(columns=columns, rows=[], row_key="id", pagination=10).props("flat dense")
            self._table.classes("hr-grid").props["data-name"] = title.lower()
            self._empty = ui.label(empty).classes("hr-empty")
        self._names = names

    def show(self, rows: list[tuple[str, ...]]) -> None:
        self._table.set_visibility(bool(rows))
        self._empty.set_visibility(not rows)
        self._table.rows = [{"id": at, **dict(zip(self._names, row, strict=True))} for at, row in enumerate(rows)]


def _task_cells(task: dict[str, Any]) -> tuple[Cell, ...]:
    throttled = humantext.seconds(task["throttled_seconds"])
    return (
        task["component"],
        Number(str(task["task"])),
        *(Number(humantext.count(task[field])) for field in _NUMBERS),
        *(Number(_milliseconds(task[field])) for field in ("execute_ms", "complete_ms", "complete_p99_ms")),
        Number(humantext.count(task["queued"])),
        Number(humantext.count(task["pending"])),
        Number(f"{throttled}, and now" if task["throttled"] else throttled),
    )


def _milliseconds(length: float | None) -> str:
    """Formats a short duration, which may be much less than a millisecond."""
    return f"{length:.3f} ms" if length is not None and length < 10 else humantext.seconds(length and length / 1000)


def _error_cells(error: dict[str, Any]) -> tuple[str, ...]:
    return (
        humantext.time(encode_time(error["time"])),
        error["component"],
        str(error["task"]),
        error["error"],
    )


def _letter_cells(letter: dict[str, Any]) -> tuple[str, ...]:
    return (
        humantext.time(encode_time(letter["time"])),
        letter["component"],
        str(letter["task"]),
        humantext.value(letter["values"]),
        humantext.value(letter["message_id"]),
        humantext.count(letter["attempts"]),
        letter["why"].replace("_", " "),
    )
