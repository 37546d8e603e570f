"""What consumer groups have read: the offsets they committed, in a file for each group and topic.

Whoever removes records asks here what is still needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from headrace.local.atomicfile import replace_file

_OFFSETS: Final = "offsets.json"


def committed(folder: Path) -> dict[int, int]:
    """The offset of the next record to be read, of each partition a group has read from."""
    return {int(partition): offset for partition, offset in read(folder / _OFFSETS).items()}


def commit(folder: Path, offsets: dict[int, int]) -> None:
    """Writes offsets of a group beside those it has. For who holds the group's lock."""
    held = committed(folder)
    if not offsets.items() <= held.items():
        replace(folder / _OFFSETS, {str(number): at for number, at in sorted({**held, **offsets}.items())})


def groups_of(groups: Path, topic: str) -> list[str]:
    """The names of a topic's groups."""
    return sorted(path.parent.name for path in groups.glob(f"*/{topic}"))


def needed(groups: Path, topic: str, partition: int) -> int | None:
    """The least offset of a partition that some group has still to read; None if there is no group."""
    offsets = (committed(groups / name / topic).get(partition) for name in groups_of(groups, topic))
    return min((offset for offset in offsets if offset is not None), default=None)


def read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {}


def replace(path: Path, held: dict[str, Any]) -> None:
    """Replaces a file, whole or not at all."""
    replace_file(path, json.dumps(held).encode())
