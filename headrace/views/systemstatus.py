"""The status of a running system as JSON: topics, views and jobs, as processes and the server send it to each other.

These are typed dicts, since the JSON passes through three processes unchanged: the system, its server and its clients.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from headrace.views.jsonencoding import ProvenanceJson, VersionJson
from headrace.views.offsets import Offsets


class PartitionStatus(TypedDict):
    """A partition of a topic: its first offset, and the offset that its next record will have."""

    partition: int
    start: int
    end: int


class ReaderStatus(TypedDict):
    """A reader of a topic: the offsets that it has reached, and the number of records that it has still to read."""

    offsets: Offsets
    lag: int


class TopicStatus(TypedDict):
    """A topic. While its brokers cannot be reached, it has the `error` and what is known without them."""

    partitions: list[PartitionStatus]
    groups: dict[str, ReaderStatus]
    archived: Offsets
    records_per_second: float | None
    error: NotRequired[str | None]


class StageStatus(TypedDict):
    """A stage of a stream that groups: its watermarks, the windows and elements that it counts, and what it waits for.

    `waiting` says why the earliest window with elements has not fired.
    """

    label: str
    watermark: str | None
    output_watermark: str | None
    lag_seconds: float | None
    held: int
    late: int
    refused: int
    waiting: NotRequired[str | None]


class MetricJson(TypedDict):
    """A metric that functions of a transform recorded. The value of a distribution is its sum, with the rest beside."""

    transform: str
    name: str
    kind: Literal["counter", "distribution", "gauge"]
    value: float
    count: NotRequired[int]
    min: NotRequired[float]
    max: NotRequired[float]


class PipelineStatus(TypedDict):
    """A pipeline of a script. A batch has the `step` that it is at and its tasks; a stream has what it reads."""

    kind: Literal["batch", "stream"]
    state: str
    error: str | None
    started: str | None
    seconds: float
    step: str
    tasks_done: int
    tasks: int
    batches: int | None
    batch_seconds: float | None
    records_per_second: float | None
    lag: int | None
    watermark: str | None
    stages: list[StageStatus]
    graph: dict[str, Any] | None
    bad: dict[str, dict[str, int]]
    metrics: list[MetricJson]


class ViewStatus(TypedDict):
    """A view: its speed layer, the origin of its answers, and its batch versions."""

    topic: str | None
    state: str | None
    error: NotRequired[str | None]
    batches: NotRequired[int | None]
    batch_seconds: NotRequired[float | None]
    records_per_second: NotRequired[float | None]
    lag: NotRequired[int | None]
    watermark: NotRequired[str | None]
    stages: NotRequired[list[StageStatus]]
    graph: NotRequired[dict[str, Any] | None]
    bad: NotRequired[dict[str, dict[str, int]]]
    metrics: NotRequired[list[MetricJson]]
    provenance: ProvenanceJson
    versions: list[VersionJson]


class JobStatus(TypedDict):
    """A batch job: `done` of `of` records, events or rows of its `step`."""

    id: int
    view: str
    incremental: bool
    state: Literal["waiting", "running", "done", "failed"]
    step: str
    done: int | None
    of: int | None
    started: str | None
    seconds: float
    version: int | None
    error: str | None


class DeadLetterJson(TypedDict):
    """A record that is no event of a view, and the time at which it was first read."""

    view: str
    position: str
    reason: str
    message: str
    record: str
    time: str | None


class SystemStatus(TypedDict):
    """The status of a system. `pid` is None if it does not run.

    That of a script has `pipelines` and no views, and says when the script is `over`.
    """

    pid: NotRequired[int | None]
    url: NotRequired[str]
    started: NotRequired[str | None]
    now: NotRequired[str | None]
    topics: NotRequired[dict[str, TopicStatus]]
    views: dict[str, ViewStatus]
    dead_letters: NotRequired[dict[str, int]]
    jobs: list[JobStatus]
    pipelines: NotRequired[dict[str, PipelineStatus]]
    over: NotRequired[bool]
