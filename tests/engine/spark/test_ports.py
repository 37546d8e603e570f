"""Ports on loopback, where every user of the machine can connect, want a secret; sockets are in a closed directory."""

from __future__ import annotations

import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORD = "from-a-stranger"


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def request(host: str, port: int) -> bytes:
    """A request of Spark's protocol to the endpoint that tells which there are: a text, as Java serializes it."""
    serialized = b"\xac\xed\x00\x05t" + utf(WORD)
    body = b"\0\1" + utf(host) + struct.pack(">i", port) + utf("endpoint-verifier") + serialized
    message = struct.pack(">bqi", 3, 1, len(body)) + body
    return struct.pack(">q", len(message) + 8) + message


def test_what_a_stranger_sends_is_not_deserialized(spark: SparkSession) -> None:
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(request("127.0.0.1", port))
        stranger.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: stranger.recv(1 << 16), b""))
    assert WORD.encode() not in answer, answer
    assert b"Expected SaslMessage" in answer


def test_a_stranger_calls_nothing_that_spark_calls(spark: SparkSession) -> None:
    gateway: Any = type(spark.sparkContext)._gateway
    port = gateway._callback_server.server_socket.getsockname()[1]
    for token in ("", "A\nwrong\ne\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
            stranger.sendall(f"{token}c\np0\n__setattr__\nsstolen\nsyes\ne\n".encode())
            try:
                answer = b"".join(iter(lambda: stranger.recv(1 << 16), b""))
            except ConnectionResetError:
                answer = b""
        assert answer in (b"", b"!x\n"), answer


def test_sockets_of_workers_and_state_are_in_a_closed_directory(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    folder = Path(conf.get("spark.python.unix.domain.socket.dir") or "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
