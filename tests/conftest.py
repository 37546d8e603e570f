"""What the whole suite shares: one Spark session, made only when a test asks for it, other servers, and settings.

The default profile of hypothesis, "ci", tries the same examples in every run; `pytest --hypothesis-profile=dev` tries
new ones.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings

from headrace.engine.spark import kafkajars
from headrace.engine.spark.classarchive import archive_options
from headrace.log import Log
from tests import forkserver
from tests.durations import Durations
from tests.scale import FULL, scaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker
    from tests.engine.sparkcluster import Cluster

# Spark reads it when its JVM starts; without it Spark binds to whatever the host name resolves to.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

# Tests start some hundred Python processes, each of which would compile what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Small data is over before a JVM that optimises itself has gained anything by it. With its first compiler alone, a JVM
# keeps 48 MB of compiled code, of which the suite's session fills 43 in its first two files: it would run out of it.
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:MetaspaceSize=256m"

# Generating and compiling code takes longer than small data does, and so does a second daemon of Python workers, which
# stateful operators have since Spark shortens the tracebacks of all others. FULL runs what users run.
_SMALL_DATA = (
    {}
    if FULL
    else {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    }
)

# For Spark in processes that tests start. An archive of classes fits a class path that begins with Kafka's connector.
_CLASSES = f"{archive_options()} {_SMALL_JVM}"
_CONNECTOR = os.pathsep.join(kafkajars.jars())
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
    [
        _SMALL_JVM,
        f'"-Dspark.executor.extraJavaOptions={_CLASSES}"',
        f"-Dspark.executor.extraClassPath={_CONNECTOR}",
        *(f"-D{name}={value}" for name, value in _SMALL_DATA.items()),
    ]
)
os.environ["SPARK_DAEMON_JAVA_OPTS"], os.environ["SPARK_DAEMON_CLASSPATH"] = _CLASSES, _CONNECTOR
os.environ["HEADRACE_TEST_PYTHON"] = sys.executable
os.environ["PYSPARK_PYTHON"] = str(Path(__file__).with_name("worker-python"))

# A loaded machine is no reason to fail: neither profile measures how long an example takes.
settings.register_profile(
    "dev", max_examples=scaled(100), deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations(config))
    if config.pluginmanager.hasplugin("xdist"):
        from tests.workers import Workers

        config.pluginmanager.register(Workers(config))


@pytest.fixture(autouse=True)
def no_session_unasked(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that makes a Spark session of its own would leave it to others, with other settings than the suite's."""
    before = _session_runs()
    yield
    if not before and "spark" not in request.fixturenames and _session_runs():
        pytest.fail("it started a Spark session: a test on Spark asks for the fixture `spark`")


def _session_runs() -> bool:
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._active_spark_context is not None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The suite's Spark session: two cores and two partitions, so that small data still crosses a shuffle."""
    from headrace.engine.spark.session import java_options, spark_session

    with nullcontext() if FULL else forkserver.running() as forks, pytest.MonkeyPatch.context() as environment:
        if forks is not None:
            environment.setenv(forkserver.FORK_SERVER, forks)  # for the session's JVM, and for no other
        session = spark_session(
            "local[2]",
            {
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "ERROR",
                **_SMALL_DATA,
                "spark.driver.extraJavaOptions": f"{java_options()} {_CLASSES}",
            },
        )
        environment.undo()
        yield session
        session.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Spark cluster of processes. A test that kills a worker starts it again."""
    from tests.engine import sparkcluster

    with sparkcluster.running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Kafka broker, if its jars are there. A test that stops it starts it again."""
    from tests.edges import kafka

    if not (kafka.jars().exists() and kafkajars.jars()):
        reason = f"no jars of Kafka in {kafkajars.cache()}: `make kafka` fetches them from Maven Central"
        if "kafka" in os.environ.get("HEADRACE_REQUIRE", "").split(","):
            pytest.fail(f"{reason}, and HEADRACE_REQUIRE says that they are required")
        pytest.skip(reason)
    started = kafka.Broker(tmp_path_factory.mktemp("kafka"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a real PostgreSQL, if its programs are there."""
    from tests.edges import postgresql

    with postgresql.running() as url:
        yield url


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


@pytest.fixture
def postgresql(postgresql_server: str) -> str:
    """The URL of an empty schema of its own."""
    schema = f"test_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(postgresql_server.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    engine.dispose()
    return f"{postgresql_server}?options=-csearch_path%3D{schema}"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The URL of a file of its own."""
    return f"sqlite:///{tmp_path}/tables.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of each kind."""
    url: str = request.getfixturevalue(request.param)
    return url
