"""Connections of the server: a WebSocket has no time limit for heads of requests."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import uvicorn

from headrace.server.http.promptprotocol import prompt_protocol

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
HELLO = b"\x81\x85\0\0\0\0hello"  # a frame of text, masked with zeros


async def echo(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "websocket"
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": (await receive())["text"]})


def test_a_websocket_outlives_the_time_for_heads() -> None:
    pytest.importorskip("websockets", reason="uvicorn speaks WebSocket with this package only")
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(echo, http=prompt_protocol(0.05, 10), log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        with socket.create_connection(listening.getsockname(), timeout=30) as upgraded:
            upgraded.sendall(HANDSHAKE)
            assert upgraded.recv(4096).startswith(b"HTTP/1.1 101")
            with socket.create_connection(listening.getsockname(), timeout=30) as silent:
                assert silent.recv(4096) == b""  # closed: the time is over, for whoever has sent no head
            upgraded.sendall(HELLO)
            assert upgraded.recv(4096) == b"\x81\x05hello"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
