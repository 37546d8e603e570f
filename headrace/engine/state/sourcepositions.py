"""The positions of a stream's sources after its last micro-batch, and how another stream begins there.

Of files, Spark logs which it has read; of topics, offsets. A new checkpoint of Spark's begins with a log of files that
were read in no micro-batch of its own, and topics begin at the offsets in the checkpoint's directory of control.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.engine.checkpoint.manifest import Manifest
from headrace.engine.connectors.streamtopics import moved_positions, reads_topic
from headrace.engine.spark.filelogs import files_read, read_before, relocated
from headrace.engine.spark.files import Folder
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.engine.state.storedstate import StoredState
from headrace.model.errors import PipelineError


def ends_by_input(state: StoredState) -> list[Any]:
    """Returns where the last micro-batch ended in each of the sources that Spark's own checkpoint has."""
    return [] if state.batch is None else OffsetLog(state.folder.folder("spark")).ends_of(state.batch)


def topic_offsets(state: StoredState) -> dict[str, dict[int, int]]:
    """Returns the offsets of the topics that a stream reads, by the labels of the sources; none before the first batch.

    Topics are the only sources whose positions are not in logs of files, but for `Rate` and the heartbeat, which is
    last.
    """
    control = state.folder.folder("control")
    topics = [name for name in state.manifest.sources if reads_topic(control, name)]
    ends = [end for end in ends_by_input(state) if isinstance(end, dict) and "logOffset" not in end]
    return {name: _by_partition(end) for name, end in zip(topics, ends, strict=False)}


def check_sources(was: Manifest, new: Manifest) -> None:
    """Refuses sources that cannot go on in a new checkpoint of Spark's."""
    if was.rounds:
        raise PipelineError(
            "shards of this stream, those of loops or vertices, send to shards of the next micro-batch, and what is on "
            "its way cannot go on in the new checkpoint of Spark's that such a savepoint begins with; go on with the "
            "savepoint as it is"
        )
    if rates := [name for name, entry in was.sources.items() if entry.kind == "Rate" and name in new.sources]:
        raise PipelineError(
            f"the numbers of the source {rates[0]!r}, which is a Rate, would begin at 0 again in the new checkpoint of "
            "Spark's that such a savepoint begins with; go on with the savepoint as it is"
        )


def begin_sources(
    state: StoredState, new: Folder, target: Folder, names: Collection[str], inputs: Mapping[int, int] | None = None
) -> None:
    """Writes to the directory `new`, which will be `target`, that its sources begin where those of a stream are.

    `names` are those of sources that stay. `inputs` says which of Spark's sources is which afterwards; without it, they
    are as they were.
    """
    ends, before = ends_by_input(state), state.folder.folder("spark").folder("sources")
    for name in before.names():
        number = int(name)
        end = ends[number] if number < len(ends) else None  # None before its first data
        files = files_read(before.folder(name), -1 if end is None else end.get("logOffset", -1))
        after = number if inputs is None else inputs.get(number)
        if files and after is not None:
            log = relocated(read_before(files), state.folder, target)
            new.folder("spark").folder("sources").folder(str(after)).write("0", log)
    control = new.folder("control")
    for label, offsets in topic_offsets(state).items():
        moved_positions(control, label, offsets if label in names else None)


def _by_partition(end: dict[str, Any]) -> dict[int, int]:
    (first,) = list(end.values())[:1] or [None]
    by_partition = first if isinstance(first, dict) else end  # Kafka's are by topic
    return {int(partition): int(offset) for partition, offset in by_partition.items()}
