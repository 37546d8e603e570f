"""Inflicts faults on a stream on a cluster at seeded moments, lets it go on, and compares what it wrote.

    python -m tests.chaos.clusterfaults --seeds 16

starts a Spark cluster, a broker of Kafka and a PostgreSQL, runs `clusterjob.py` once for each seed, and prints a table
in Markdown. A moment is a batch and a number of file events after Spark has logged its offsets. Faults are

    executor    SIGKILL of an executor
    python      SIGKILL of a Python worker of an executor
    worker      SIGKILL of a worker daemon, its executors and their Python workers; it is started again
    driver      SIGKILL of the driver; it is started again
    freeze      SIGSTOP of a worker daemon and all below it, until Spark has given its tasks away; then it comes back
    minute      the same, but it comes back after a minute at the earliest
    disk        the disk on which one worker has its shuffles and its state is full until the next batch
    broker      the broker of Kafka stops and starts
    database    PostgreSQL is killed and recovers
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import sqlalchemy as sa

from tests.edges import postgresql
from tests.edges.kafka import Broker
from tests.engine import sparkcluster
from tests.engine.sparkcluster import Cluster, Worker

sys.path.insert(0, str(Path(__file__).parent))  # as for the other jobs, which are scripts
import clusterjob
from events import FileEvents

KINDS: Final = ("executor", "python", "worker", "driver", "freeze", "disk", "broker", "database", "minute")
RESTARTS: Final = 6
"""How often a stream that ends with an error is run again: nobody would, for ever."""
DISK: Final = "192m"


@dataclass(frozen=True)
class Fault:
    """A kind of fault, so many file events after the offsets of a batch were logged; `which` worker it hits."""

    kind: str
    batch: int
    events: int
    which: int

    def __str__(self) -> str:
        return f"{self.kind} {self.which} at `offsets/{self.batch} + {self.events}`"


@dataclass
class Servers:
    """What a stream needs besides its driver; `disk` is the small disk of worker 0, if there is one."""

    cluster: Cluster
    broker: Broker
    database: postgresql.Server
    disk: Path | None = None
    later: list[Callable[[], None]] = field(default_factory=list)

    def mend(self) -> None:
        """Ends what faults began: what is frozen continues, disks have room again."""
        while self.later:
            self.later.pop()()


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    faults: tuple[Fault, ...]
    starts: int
    seconds: float
    differing: tuple[str, ...]

    def row(self, seed: int) -> str:
        told = "equal" if not self.differing else "DIFFERS: " + ", ".join(self.differing)
        listed = "<br>".join(map(str, self.faults)) or "none"
        return f"| {seed} | {listed} | {self.starts - 1} | {self.seconds:.0f} s | {told} |"


HEAD: Final = "| seed | faults | restarts | took | output |\n|---|---|---|---|---|"


def survive(folder: Path, name: str, servers: Servers, faults: list[Fault]) -> Result:
    """Runs the stream of a new folder to its end while faults happen, in the order of their moments."""
    folder.mkdir()
    began = time.monotonic()
    source, sink = servers.broker.create(f"{name}-in", partitions=3), servers.broker.create(f"{name}-out", partitions=2)
    servers.broker.send(f"{name}-in", *clusterjob.messages())
    url = postgresql.empty(servers.database.url, name.replace("-", "_"))
    done = list[Fault]()
    starts, code = 0, None
    try:
        while code != 0:
            assert starts <= RESTARTS + len(faults), tail(folder)
            starts += 1
            process = _started(folder, [source, sink, url], servers.cluster)
            done += _inflicted(folder, process, servers, faults[len(done) :])
            code = process.wait()
    finally:
        servers.mend()
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        found = clusterjob.output(folder, servers.broker.contents(f"{name}-out"), connection)
    engine.dispose()
    differing = [sink for sink, rows in clusterjob.expected().items() if found[sink] != rows]
    return Result(tuple(done), starts, time.monotonic() - began, tuple(differing))


def tail(folder: Path) -> str:
    """The last of what drivers said."""
    return (folder / "log").read_text(errors="replace")[-4000:]


def _started(folder: Path, arguments: list[str], cluster: Cluster) -> subprocess.Popen[bytes]:
    """A driver, in a process group of its own."""
    environment = {
        **os.environ,
        **cluster.environment,
        "SPARK_MASTER": cluster.url,
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("clusterjob.py")), str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _inflicted(folder: Path, driver: subprocess.Popen[bytes], servers: Servers, faults: list[Fault]) -> list[Fault]:
    """Inflicts faults, one after the other, until the driver has ended; returns those that happened."""
    offsets = folder / "checkpoint" / "spark" / "offsets"
    events = FileEvents(folder, driver.pid)
    left, done, at = list(faults), list[Fault](), 0
    mend_at: Path | None = None
    try:
        for path in events:
            if mend_at is not None and mend_at.exists():
                servers.mend()
                mend_at = None
            if not left or path == folder / "log" or not (offsets / str(left[0].batch)).exists():
                continue
            at += 1
            if at < left[0].events or not INFLICT[left[0].kind](left[0], driver, servers):
                continue
            fault = left.pop(0)
            done.append(fault)
            at = 0
            if servers.later:
                mend_at = offsets / str(fault.batch + 1)
            if fault.kind == "driver":
                break
    finally:
        events.close()
        servers.mend()
    return done


def _kill_executor(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    return _kill(_busy(servers, fault).executors())


def _kill_python(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    return _kill([each for worker in servers.cluster.workers for each in worker.python_workers()][-1:])


def _kill_worker(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    worker = _busy(servers, fault)
    worker.kill()
    start = threading.Thread(target=worker.start)  # while the stream goes on without it
    start.start()
    servers.later.append(start.join)
    return True


def _kill_driver(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    os.killpg(driver.pid, signal.SIGKILL)  # its JVM is in the group; executors end by themselves, a little later
    return True


def _freeze(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    worker = _busy(servers, fault)
    if not worker.python_workers():
        return False
    frozen, since = worker.freeze(), time.monotonic()

    def thaw() -> None:
        if fault.kind == "minute":
            time.sleep(max(0.0, 60 - (time.monotonic() - since)))
        worker.thaw(frozen)

    servers.later.append(thaw)
    return True


def _fill_disk(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    if servers.disk is None:
        return True
    ballast = servers.disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                pass
        except OSError:
            pass
    servers.later.append(ballast.unlink)
    return True


def _restart_broker(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    servers.broker.stop()
    servers.broker.start()
    return True


def _restart_database(fault: Fault, driver: subprocess.Popen[bytes], servers: Servers) -> bool:
    servers.database.restart()
    return True


INFLICT: Final[dict[str, Callable[[Fault, subprocess.Popen[bytes], Servers], bool]]] = {
    "executor": _kill_executor,
    "python": _kill_python,
    "worker": _kill_worker,
    "driver": _kill_driver,
    "freeze": _freeze,
    "minute": _freeze,
    "disk": _fill_disk,
    "broker": _restart_broker,
    "database": _restart_database,
}
"""What inflicts a kind of fault; it returns False if there is nothing to hit yet."""


def _busy(servers: Servers, fault: Fault) -> Worker:
    """The worker that a fault hits: of those with an executor."""
    workers = [each for each in servers.cluster.workers if each.alive() and each.executors()] or servers.cluster.workers
    return workers[fault.which % len(workers)]


def _kill(processes: list[psutil.Process]) -> bool:
    """Kills processes; tells whether there were any."""
    for each in processes:
        sparkcluster.send(each, signal.SIGKILL)
    return bool(processes)


def faults_of(seed: int) -> list[Fault]:
    """What a seed inflicts: seeds in a row take all kinds in turn, and one or two more."""
    rng = random.Random(seed)
    batches = clusterjob.EVENTS // clusterjob.PER_BATCH
    kinds = [KINDS[(seed - 1) % len(KINDS)], *rng.sample(KINDS[:-1], rng.choice([0, 1, 1, 2]))]
    moments = sorted(rng.sample(range(1, batches - 1), len(kinds)))
    return [Fault(kind, batch, rng.randrange(40), rng.randrange(3)) for kind, batch in zip(kinds, moments, strict=True)]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of a few megabytes at a folder, if this process may mount one; None if it may not."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], capture_output=True)
    try:
        yield folder if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", folder], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=9, help="how many seeds to try")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all servers end with this process
    with ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-cluster-", ignore_cleanup_errors=True))
        )
        (root / "kafka").mkdir()
        broker = Broker(root / "kafka")
        broker.start()
        stack.callback(broker.stop)
        database = stack.enter_context(postgresql.serving())
        (root / "cluster").mkdir()
        disk = stack.enter_context(small_disk(root / "cluster" / "worker0" / "local"))
        if disk is None:
            print(
                "no disk can be mounted here, which needs root: faults of the kind `disk` do nothing", file=sys.stderr
            )
        cluster = stack.enter_context(sparkcluster.running(root / "cluster"))
        servers = Servers(cluster, broker, database, disk)
        print(HEAD, flush=True)
        failed = False
        for seed in range(options.first, options.first + options.seeds):
            result = survive(root / f"seed-{seed}", f"seed-{seed}", servers, faults_of(seed))
            print(result.row(seed), flush=True)
            failed = failed or bool(result.differing) or not result.faults
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
