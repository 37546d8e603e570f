"""Tests what a stream remembers of its topics: its first positions and its consumer groups. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.engine.connectors.streamtopics import StreamTopics, began_at
from headrace.log import Group, Log


class Control(dict[str, bytes]):
    """A directory of a checkpoint, in memory."""

    read = dict.get
    write = dict.__setitem__


def topics(control: Any, *, temporary: bool = False) -> StreamTopics:
    spark: Any = None
    return StreamTopics(spark, control, "counts", temporary=temporary)


def test_a_stream_goes_on_with_the_positions_that_it_began_with() -> None:
    control = Control()
    first = topics(control).positions("read it", lambda: ({0: 5, 1: 7}, {0: 9, 1: 7}))
    assert first == ({0: 5, 1: 7}, {0: 9, 1: 7})
    assert topics(control).positions("read it", lambda: ({0: 0}, None)) == first
    assert topics(control).positions("another", lambda: ({0: 1}, None)) == ({0: 1}, None)
    assert began_at(control, "read it") == {0: 5, 1: 7}  # type: ignore[arg-type]


def test_a_stream_that_has_not_begun() -> None:
    with pytest.raises(LookupError, match="no stream has read 'read' yet"):
        began_at(Control(), "read")  # type: ignore[arg-type]


@pytest.mark.parametrize("temporary", [True, False])
def test_consumer_groups_of_a_temporary_checkpoint_are_deleted(tmp_path: Path, temporary: bool) -> None:
    log = Log(tmp_path)
    log.create("visits", partitions=1)
    run = topics(Control(), temporary=temporary)
    group = run.group("read", str(tmp_path), "visits")
    assert run.group("read", str(tmp_path), "visits") is group
    group.commit({0: 0})
    run.close()
    assert Group.names(log, "visits") == ([] if temporary else ["counts-read"])
