"""The panel of topics: partitions with offsets, the groups that read them, and how far they are archived."""

from __future__ import annotations

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.listings import Listing, Number
from headrace.server.page.poller import Snapshot
from headrace.views.systemstatus import TopicStatus


class TopicsPanel:
    """Shows a card for each topic."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._cards: dict[str, _Card] = {}
        self._stack = ui.element("div").classes("hr-stack")
        self._empty = ui.label("There are no topics; a view's hr.Topic makes one.").classes("hr-empty")

    async def show(self, snapshot: Snapshot) -> None:
        topics = snapshot.status["topics"]
        self._empty.set_visibility(not topics)
        for name, topic in topics.items():
            if name not in self._cards:
                ingestion = self.context.service.topics.get(name)
                with self._stack:
                    self._cards[name] = _Card(name, "" if ingestion is None else ingestion.declared.schema)
            self._cards[name].show(topic)


class _Card:
    """Shows the partitions and groups of a topic."""

    def __init__(self, name: str, schema: str) -> None:
        with ui.element("section").classes("hr-card") as card:
            card.props["data-topic"] = name
            with ui.element("div").classes("hr-head"):
                ui.label(name).classes("hr-title")
                self._facts = ui.label("").classes("hr-muted hr-small")
            ui.label(schema).classes("hr-code")
            with ui.element("div").classes("hr-columns"):
                with ui.element("div"):
                    ui.label("Partitions").classes("hr-subtitle")
                    numbers = [Number(header) for header in ("First offset", "Next offset", "Records", "Archived to")]
                    self._partitions = Listing(
                        ("Partition", *numbers), "It has no partitions.", name=f"partitions {name}"
                    )
                with ui.element("div"):
                    ui.label("Groups").classes("hr-subtitle")
                    self._groups = Listing(
                        ("Group", "Offsets by partition", Number("Behind")),
                        "Nobody reads it yet; a view that runs is a group, and so is `headrace topic consume`.",
                        name=f"groups {name}",
                    )

    def show(self, topic: TopicStatus) -> None:
        partitions = topic["partitions"]
        archived = {int(partition): offset for partition, offset in (topic["archived"] or {}).items()}
        records = sum(partition["end"] - partition["start"] for partition in partitions)
        rate = topic["records_per_second"]
        facts = [f"{humantext.count(records)} records in {humantext.some(len(partitions), 'partition')}"]
        facts += [] if rate is None else [f"{humantext.rate(rate)} coming in"]
        self._facts.set_text(topic.get("error") or " · ".join(facts))
        self._partitions.show(
            [
                (
                    str(partition["partition"]),
                    Number(humantext.count(partition["start"])),
                    Number(humantext.count(partition["end"])),
                    Number(humantext.count(partition["end"] - partition["start"])),
                    Number(humantext.count(archived.get(partition["partition"]))),
                )
                for partition in partitions
            ]
        )
        self._groups.show(
            [
                (name, humantext.offsets(group["offsets"]), Number(humantext.count(group["lag"])))
                for name, group in topic["groups"].items()
            ]
        )
