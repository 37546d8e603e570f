"""Kills processes of a stream with SIGKILL at seeded moments, lets it go on, and compares what it wrote.

    python tests/chaos/kill.py --seeds 25 [--job logjob] [--of worker]

runs `job.py`, or another, once undisturbed and once for each seed, and prints a table in Markdown. What is killed is
the driver, JVM and all, or one of Spark's Python workers. A moment is a file of the stream (a log entry, a state, a
batch of a sink) and a number of file events after it appeared. Nothing waits for time to pass.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import beamjob
import dstreamsjob
import job
import lakejob
import logjob
import loopjob
import millwheeljob
import psutil
import retryjob
import shardedloopjob
import sqljob
import stormjob
from events import FileEvents
from job import Output

from headrace.engine.spark.session import WORKER_DAEMON

JOBS: Final = {
    "job": job,
    "logjob": logjob,
    "lakejob": lakejob,
    "loopjob": loopjob,
    "shardedloopjob": shardedloopjob,
    "stormjob": stormjob,
    "retryjob": retryjob,
    "sqljob": sqljob,
    "dstreamsjob": dstreamsjob,
    "millwheeljob": millwheeljob,
    "beamjob": beamjob,
}
"""The streams that can be killed."""

DRIVER, WORKER = "driver", "worker"
VICTIMS: Final = {"driver": [(DRIVER,)], "worker": [(WORKER,)], "both": [(DRIVER,), (WORKER,), (WORKER, DRIVER)]}
"""What seeds in a row kill; after it, some kill another driver or worker."""

EVENTS: Final = 60
"""How many file events after a landmark a kill may come; a batch has about 100."""


@dataclass(frozen=True)
class Moment:
    """So many file events after a file appeared."""

    landmark: str
    events: int
    victim: str = DRIVER
    which: int = 0  # of the workers there are then

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
        moments = "<br>".join(
            f"{moment.victim}: `{moment}` (at `{last}`)" for moment, last in zip(self.kills, self.last, strict=True)
        )
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
        raise RuntimeError(f"the stream in {folder} failed:\n{tail(folder)}")


def tail(folder: Path) -> str:
    """The last of what a job said."""
    return (folder / "log").read_text(errors="replace")[-3000:]


def killing(folder: Path, process: int, moments: list[Moment]) -> Iterator[tuple[Moment, str]]:
    """Kills at moments, one after the other, until the driver is dead; gives each with the file of the last event.

    A worker that is to be killed before there are any is killed at the first event after there are.
    """
    events = FileEvents(folder, process)
    left = list(moments)
    try:
        at, seen = 0, (folder / left[0].landmark).exists()
        for path in events:
            if folder / "scratch" in path.parents or path == folder / "log" or "status.json" in path.name:
                continue  # what is written whatever the stream does, or as time passes
            moment = left[0]
            at += seen
            seen = seen or path == folder / moment.landmark
            if not seen or at < moment.events or not killed(process, moment):
                continue
            yield left.pop(0), shown(path.relative_to(folder))
            if moment.victim == DRIVER or not left:
                return
            at, seen = 0, (folder / left[0].landmark).exists()
    finally:
        events.close()


def killed(driver: int, moment: Moment) -> bool:
    """Kills the driver or one of its workers; tells whether there was one."""
    if moment.victim == DRIVER:
        os.killpg(driver, signal.SIGKILL)  # the JVM is in the group, and Python workers end with it
        return True
    try:
        there = sorted(worker.pid for worker in psutil.Process(driver).children(recursive=True) if is_worker(worker))
        if there:
            os.kill(there[moment.which % len(there)], signal.SIGKILL)
        return bool(there)
    except (psutil.NoSuchProcess, ProcessLookupError):  # it was just about to end
        return False


def is_worker(process: psutil.Process) -> bool:
    """Whether a process is one that Spark's daemon forked to run Python tasks."""
    try:
        parent = process.parent()
        return parent is not None and all(WORKER_DAEMON in each.cmdline() for each in (process, parent))
    except psutil.NoSuchProcess:
        return False


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


def moments(seed: int, places: dict[str, list[str]], of: str) -> list[Moment]:
    """When a seed kills, and whom. Seeds in a row take all kinds of landmarks in turn, and all kinds of victims."""
    rng = random.Random(seed)
    kinds, victims = list(places), VICTIMS[of][(seed - 1) % len(VICTIMS[of])]
    more = rng.choice([0, 0, 1]) if len(victims) == 1 else len(victims) - 1
    kinds = [kinds[(seed - 1) % len(kinds)], *rng.sample(kinds, more)]
    chosen = [(rng.choice(places[kind]), rng.randrange(EVENTS)) for kind in kinds]
    return [Moment(*each, victims[at % len(victims)], rng.randrange(8)) for at, each in enumerate(chosen)]


def survive(seed: int, folder: Path, name: str, left: list[Moment], expected: Output) -> Result:
    """Kills a job at moments, and lets it come to its end. Whoever loses a worker may end, or go on by itself."""
    folder.mkdir()
    done: list[tuple[Moment, str]] = []
    starts, code = 0, None
    while code != 0:
        process = started(folder, name)
        starts += 1
        killed_now = list(killing(folder, process.pid, left)) if left else []
        done += killed_now
        left = left[len(killed_now) :] if killed_now else []  # a moment that did not come will not come either
        code = process.wait()
        if code != 0 and not killed_now:
            raise RuntimeError(f"the stream in {folder} failed:\n{tail(folder)}")
    found = JOBS[name].output(folder)
    differing = tuple(sink for sink in expected if found[sink] != expected[sink])
    kills, last = zip(*done, strict=True) if done else ((), ())
    return Result(seed, kills, last, starts, differing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25, help="how many seeds to try")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--job", choices=list(JOBS), default="job", help="the stream that is killed")
    parser.add_argument("--undisturbed", type=Path, help="where the job has run to its end, if it has")
    parser.add_argument("--of", choices=list(VICTIMS), default=DRIVER, help="what is killed")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    undisturbed = options.undisturbed or root / "undisturbed"
    if options.undisturbed is None:
        undisturbed.mkdir()
        finish(undisturbed, options.job)
    expected, places = JOBS[options.job].output(undisturbed), landmarks(undisturbed, options.job)
    assert all(expected.values()) and all(places.values()), "the undisturbed run wrote nothing"
    print(HEAD, flush=True)
    failed = False

    def tried(seed: int) -> Result:
        folder = root / f"seed-{seed}"
        result = survive(seed, folder, options.job, moments(seed, places, options.of), expected)
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
