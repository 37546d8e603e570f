"""Finds the jars of Spark's Kafka connector, which `make kafka` puts into a cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace.model.errors import PipelineError

VERSION: Final = "4.2.0"
PACKAGE: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}"
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def cache() -> Path:
    """Returns the directory that `make kafka` fetches into."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace")


def jars() -> list[str]:
    """Lists the connector's jars in the cache; none if it was not fetched."""
    return sorted(map(str, (cache() / f"connector-{VERSION}").glob("*.jar")))


def session_settings(master: str, jars: list[str]) -> dict[str, str]:
    """Returns the settings that give a new session these jars.

    >>> session_settings("local[*]", ["connector.jar"])
    {'spark.driver.extraClassPath': 'connector.jar'}
    """
    if not jars:
        return {}
    if master.startswith("local"):
        return {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    return {"spark.jars": ",".join(jars)}


def check(spark: SparkSession, who: object) -> None:
    """Raises an error if the session has no connector."""
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_PROVIDER):
        raise PipelineError(
            f"{who}: this Spark session has no connector to Kafka; fetch it with `make kafka` before Headrace makes "
            f"the session, or start Spark with --packages {PACKAGE}"
        )
