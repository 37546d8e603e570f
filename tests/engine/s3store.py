"""A store that speaks S3, on loopback, for tests: moto's, in this process, with faults that a test asks for."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from headrace.engine.spark.kafkajars import cache

VERSION: Final = "3.5.0"
"""The version of Hadoop's client, which is that of Hadoop in Spark."""
BUCKET: Final = "lake"
_LISTING: Final = 0.05  # seconds that a slow listing takes


def jars() -> list[str]:
    """Lists the jars of Hadoop's client; none if they were not fetched."""
    return sorted(map(str, (cache() / f"s3a-{VERSION}").glob("*.jar")))


class _Silent(WSGIRequestHandler):
    """Logs no requests, and lets a client go on once: werkzeug and the standard library would both say so."""

    def handle_expect_100(self) -> bool:
        return True

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Store:
    """A store with one bucket. Each write that comes is told to `on_write`, before it is done."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Silent)
        self.url = f"http://127.0.0.1:{self._server.port}"
        self.busy = 0.0  # the share of requests that are answered with 503
        self.slow = False  # whether listings take their time
        self.refused = self.listed = 0
        self.writes: list[str] = []
        self.on_write: Callable[[str], None] = lambda write: None
        self._random, self._lock = random.Random(1), threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.client = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        urlopen(Request(f"{self.url}/moto-api/reset", method="POST")).close()  # all stores of a process are one
        self.writes.clear()
        self.client.create_bucket(Bucket=BUCKET)

    def __call__(self, environment: dict[str, Any], start: Any) -> Iterable[bytes]:
        method, path = environment["REQUEST_METHOD"], environment["PATH_INFO"]
        listing = method == "GET" and "list-type" in parse_qs(environment.get("QUERY_STRING", ""))
        ours = "boto" in environment.get("HTTP_USER_AGENT", "").lower()
        with self._lock:
            if not ours and self._random.random() < self.busy:
                self.refused += 1
                environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
                start("503 Slow Down", [("Content-Type", "application/xml")])
                return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]
            if not ours and method in ("PUT", "POST", "DELETE"):
                self.writes.append(f"{method} {path}")
        if not ours and method in ("PUT", "POST", "DELETE"):
            self.on_write(f"{method} {path}")
        if listing and self.slow:
            self.listed += 1
            threading.Event().wait(_LISTING)
        answer: Iterable[bytes] = self._application(environment, start)
        return answer

    def names(self, prefix: str = "") -> list[str]:
        """The names of all files."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()


def session_settings(url: str, scratch: Path) -> dict[str, str]:
    """Settings of a Spark session with Hadoop's client, for this store."""
    return {
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": ":".join(jars()),
        "spark.hadoop.fs.s3a.endpoint": url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "spark.hadoop.fs.s3a.access.key": "a",
        "spark.hadoop.fs.s3a.secret.key": "b",
        "spark.hadoop.fs.s3a.buffer.dir": str(scratch),
        "spark.hadoop.fs.s3a.retry.throttle.interval": "20ms",
    }
