"""The committed offsets of consumer groups, in a file for each group and topic.

Retention reads them to find out which records are still needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from headrace.local.atomicfile import replace_file

_OFFSETS: Final = "offsets.json"


def committed(folder: Path) -> dict[int, int]:
    """Returns the offset of the next record to read, for each partition that a group has read from."""
    return {int(partition): offset for partition, offset in read(folder / _OFFSETS).items()}


def commit(folder: Path, offsets: dict[int, int]) -> None:
    """Updates the offsets of a group. The caller holds the group's lock."""
    before = committed(folder)
    if not offsets.items() <= before.items():
        replace(folder / _OFFSETS, {str(number): offset for number, offset in sorted({**before, **offsets}.items())})


def groups_of(groups: Path, topic: str) -> list[str]:
    """Returns the names of a topic's groups."""
    return sorted(path.parent.name for path in groups.glob(f"*/{topic}"))


def needed(groups: Path, topic: str, partition: int) -> int | None:
    """Returns the least offset of a partition that some group has still to read; None if there is no group."""
    offsets = (committed(groups / name / topic).get(partition) for name in groups_of(groups, topic))
    return min((offset for offset in offsets if offset is not None), default=None)


def read(path: Path) -> dict[str, Any]:
    """Reads a file of JSON; returns an empty dict if it does not exist."""
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {}


def replace(path: Path, content: dict[str, Any]) -> None:
    """Replaces a file of JSON, atomically."""
    replace_file(path, json.dumps(content).encode())
