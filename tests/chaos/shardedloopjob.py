"""The loops of `loopjob.py` in two shards, which exchange from one micro-batch to the next.

    python tests/chaos/shardedloopjob.py FOLDER

begins the stream of a folder, or goes on with it, and leaves its output there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import loopjob
from loopjob import LANDMARKS, output

BATCHES: Final = 4
"""How many epochs there are; each takes as many micro-batches as it has rounds, and more."""

__all__ = ["LANDMARKS", "output", "run"]


def run(folder: Path) -> None:
    """Runs the stream of a folder to its end."""
    loopjob.run(folder, BATCHES, shards=2)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
