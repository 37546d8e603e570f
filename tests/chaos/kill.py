"""Kills the driver of a stream with SIGKILL at seeded moments, starts it again, and compares what it wrote.

    python tests/chaos/kill.py --seeds 25 [--job logjob]

runs `job.py`, or another, once undisturbed and once for each seed, and prints a table in Markdown. A moment is a file
of the stream (a log entry, a state, a batch of a sink) and a number of file events after it appeared. Nothing waits for
time to pass.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import job
import logjob
import stormjob
from events import FileEvents
from job import Output

JOBS: Final = {"job": job, "logjob": logjob, "stormjob": stormjob}
"""The streams that can be killed."""

EVENTS: Final = 60
"""How many file events after a landmark a kill may come; a batch has about 100."""


@dataclass(frozen=True)
class Moment:
    """So many file events after a file appeared."""

    landmark: str
    events: int

    def __str__(self) -> str:
        return f"{self.landmark} + {self.events}"


@dataclass(frozen=True)
class Result:
    """What came of a seed: where it was killed, the last file event before each kill, and what differs in the end."""

    seed: int
    kills: tuple[Moment, ...]
    last: tuple[str, ...]
    starts: int
    differing: tuple[str, ...]

    def row(self) -> str:
        told = "equal" if not self.differing else "DIFFERS: " + ", ".join(self.differing)
        moments = "<br>".join(f"`{moment}` (at `{last}`)" for moment, last in zip(self.kills, self.last, strict=True))
        return f"| {self.seed} | {moments or 'none'} | {self.starts - 1} | {told} |"


HEAD: Final = "| seed | killed at | restarts | output |\n|---|---|---|---|"


def started(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """The job of a folder, in a process group of its own; what it leaves in temporary files goes with the folder."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "TMPDIR": str(scratch),
        # A JVM that lives for seconds should not spend them on optimising itself.
        "JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
    }
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(f"{name}.py")), str(folder)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finish(folder: Path, name: str) -> None:
    """Runs the job to its end."""
    if started(folder, name).wait() != 0:
        tail = (folder / "log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"the stream in {folder} failed:\n{tail}")


def killed(folder: Path, name: str, moment: Moment) -> str | None:
    """Runs the job until the moment and kills it; returns the file of the last event, or None if it ended before."""
    process = started(folder, name)
    events = FileEvents(folder, process.pid)
    landmark, left = folder / moment.landmark, moment.events
    seen = landmark.exists()
    try:
        for path in events:
            if folder / "scratch" in path.parents or path == folder / "log":
                continue
            if seen:
                left -= 1
            seen = seen or path == landmark
            if seen and left <= 0:
                os.killpg(process.pid, signal.SIGKILL)  # the JVM is in the group, and Python workers end with it
                return shown(path.relative_to(folder))
        return None
    finally:
        events.close()
        process.wait()


def remove(folder: Path) -> None:
    """Removes what a run left; its JVM, which ends a little after Python, may be doing the same."""
    shutil.rmtree(folder, ignore_errors=True)


def shown(path: Path) -> str:
    """A path without what is different in every run."""
    return re.sub("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "…", "/".join(path.parts[:6])).partition("/_temporary")[
        0
    ]


def landmarks(folder: Path, name: str) -> dict[str, list[str]]:
    """The landmarks of a run that is over, by kind, without the last of each: a kill must find the stream alive."""
    found = {kind: sorted(str(path.relative_to(folder)) for path in folder.glob(kind)) for kind in JOBS[name].LANDMARKS}
    return {kind: paths[:-1] if len(paths) > 1 else paths for kind, paths in found.items()}


def moments(seed: int, places: dict[str, list[str]]) -> list[Moment]:
    """When a seed kills: once, or a second time in the run that follows. Seeds in a row take all kinds in turn."""
    rng = random.Random(seed)
    kinds = list(places)
    kinds = [kinds[(seed - 1) % len(kinds)], *rng.sample(kinds, rng.choice([0, 0, 1]))]
    return [Moment(rng.choice(places[kind]), rng.randrange(EVENTS)) for kind in kinds]


def survive(seed: int, folder: Path, name: str, places: dict[str, list[str]], expected: Output) -> Result:
    """Kills the job at the moments of a seed, then lets it come to its end."""
    folder.mkdir()
    kills, last = [], []
    starts = 1
    for moment in moments(seed, places):
        path = killed(folder, name, moment)
        if path is not None:
            kills.append(moment)
            last.append(path)
            starts += 1
    finish(folder, name)
    found = JOBS[name].output(folder)
    differing = tuple(sink for sink in expected if found[sink] != expected[sink])
    return Result(seed, tuple(kills), tuple(last), starts, differing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25, help="how many seeds to try")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--job", choices=list(JOBS), default="job", help="the stream that is killed")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    undisturbed = root / "undisturbed"
    undisturbed.mkdir()
    finish(undisturbed, options.job)
    expected, places = JOBS[options.job].output(undisturbed), landmarks(undisturbed, options.job)
    assert all(expected.values()) and all(places.values()), "the undisturbed run wrote nothing"
    print(HEAD, flush=True)
    failed = False

    def tried(seed: int) -> Result:
        folder = root / f"seed-{seed}"
        result = survive(seed, folder, options.job, places, expected)
        if not result.differing:
            remove(folder)
        return result

    # A process that starts keeps one core busy, more or less.
    with ThreadPoolExecutor(max_workers=2) as pool:
        for result in pool.map(tried, range(options.first, options.first + options.seeds)):
            print(result.row(), flush=True)
            failed = failed or bool(result.differing) or not result.kills
    if failed:
        print(f"\nSee {root}", file=sys.stderr)
        return 1
    remove(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
