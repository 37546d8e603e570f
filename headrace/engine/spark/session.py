"""Makes the Spark session that Headrace runs on, with settings that suit it, unless the caller has one."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headrace.engine.spark import kafkajars
from headrace.engine.spark.callbacks import authenticate_callbacks
from headrace.engine.spark.classarchive import archive_options
from headrace.engine.spark.environmentarchive import ARCHIVE, archive_settings, use_python_by_name
from headrace.engine.spark.java import check_java
from headrace.engine.spark.javasources import install_beside
from headrace.engine.spark.jvmstderr import launch_gateway
from headrace.engine.spark.pythonpath import python_path

_LOGGING = Path(__file__).with_name("log4j2.properties")
WORKER_DAEMON = "headrace.engine.stream.workerdaemon"
"""The module that forks Python workers on this machine. Those of a cluster may not have it."""

CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting of how a stream writes the files of its checkpoint."""
LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Its value for a disk of this machine: the default starts a process, readlink, four times for each file."""
STORE_FILES = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""Its value for an object store, from spark-hadoop-cloud: the default renames each file, which is a copy there."""

_PATIENCE = "1800s"
"""What is not there after so long will not come; on a busy machine much is there after minutes only."""

_LONGEST_FOLDER = 61
"""The length of a path beyond which Spark refuses it for sockets, whose names the system limits."""

_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How long Python and the JVM wait for each other when they connect. The default, 15 s, is short on a busy machine.
    "spark.python.authenticate.socketTimeout": _PATIENCE,
    "spark.sql.broadcastTimeout": "-1",  # as long as it takes
    # What Spark's logs do not show: the default, and private keys of Kafka's clients.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|keystore[.]key",
}


def spark_session(master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the running session, or a new one on `master`, on SPARK_MASTER, or on all cores of this machine.

    >>> spark_session().version.startswith("4.")
    True
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    where = master or os.environ.get("SPARK_MASTER") or "local[*]"
    local = {**_LOCAL, **_socket_settings()} if where.startswith("local") else _shipped_environment()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers run another interpreter
    named = {**os.environ, **(config or {})}
    java = {"spark.driver.extraJavaOptions": f"{java_options()} {tuning_options(named)} {archive_options()}"}
    settings = {**_SETTINGS, **java, **local, **kafkajars.session_settings(where, kafkajars.jars()), **(config or {})}
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark asks for the address of this machine's name
        settings["spark.executorEnv.PYTHONPATH"] = python_path()
    conf = SparkConf().setMaster(where).setAppName("headrace").setAll(list(settings.items()))
    if SparkContext._gateway is None:  # or this process has a JVM already
        check_java()
        gateway = launch_gateway(conf)
        authenticate_callbacks(gateway)
        context = SparkContext(conf=conf, gateway=gateway)
        if where.startswith("local"):
            install_beside(context)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _shipped_environment() -> dict[str, str]:
    """Returns the settings by which executors get the packages of the archive that HEADRACE_ARCHIVE names, if any."""
    if not (archive := os.environ.get(ARCHIVE)):
        return {}
    use_python_by_name()
    return archive_settings(archive)


def _socket_settings() -> dict[str, str]:
    """Returns the settings by which the JVM and Python workers connect in a directory that only this user can enter.

    On ports of loopback, a stream's state would be served to whoever connects first, of all users of the machine.
    """
    folder = tempfile.mkdtemp(prefix="hr-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > _LONGEST_FOLDER:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


def java_options() -> str:
    """Returns the options of Spark's JVM: deep plans, and a stop in mid-batch, overflow the default stack.

    >>> java_options().split()[0]
    '-Xss8m'
    """
    return f"-Xss8m -Dlog4j2.configurationFile={_LOGGING.as_uri()}"


def tuning_options(environment: Mapping[str, str]) -> str:
    """Returns the options by which Spark's JVM spends less on itself; its collector, unless the environment names one.

    What a stream leaves in the JVM is small and short-lived, but Java's default collector, G1, searches all of it for
    garbage whenever more classes were loaded than it was prepared for: a fifth of the CPU of the first batches. And of
    the code that plans and schedules micro-batches, whatever was called 5,000 times is compiled for its highest speed:
    half of that CPU. Here it has to be called ten times as often. Loops over rows are compiled as soon as ever.

    >>> tuning_options({}).split()[0], "GC" in tuning_options({"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC"})
    ('-XX:+UseParallelGC', False)
    """
    named = any(re.search(r"-XX:\+Use\w+GC\b", environment.get(name, "")) for name in _JAVA_VARIABLES)
    return " ".join([*([] if named else ["-XX:+UseParallelGC"]), *_TUNING])


_TUNING = (
    "-XX:MetaspaceSize=256m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:+IgnoreUnrecognizedVMOptions",  # of which another vendor's JVM may not know some
)
_JAVA_VARIABLES = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
    "spark.driver.defaultJavaOptions",
)
"""Variables and settings with options of a JVM. With two collectors it would not start."""

_LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # The JVM listens even here, and would deserialize what any user of this machine sends. Spark makes the secret.
    "spark.authenticate": "true",
    "spark.network.timeout": _PATIENCE,  # driver and executor are one process: what is silent is only slow
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    # A stream lists its directories before each batch; for more than 32 Spark would start a job of as many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.python.daemon.module": WORKER_DAEMON,
    CHECKPOINT_FILES: LOCAL_FILES,  # streams set it, too, but logs of file sources have what the session has
}


def is_loadable(spark: SparkSession, name: str) -> bool:
    """Tells whether the session has a class of this name."""
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(name))
