"""Serves a schema registry on loopback: the part of Confluent's HTTP API that clients of topics use.

It is not Confluent's server, which no package index has. It keeps schemas as they were registered, gives equal ones the
same id, and asks for a user if it has one; it checks no compatibility, but refuses what is registered under a frozen
subject, as Confluent's does with what is not compatible. Protobuf's schemas are only descriptors in base64, as
confluent-kafka registers them and as `format=serialized` asks for them.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Registry:
    """The schemas of a registry: by id, and the ids of each subject, in the order of their versions."""

    url: str = ""
    user: str | None = None  # and password, as "ann:hunter2"
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Registers a schema; returns its id."""
        schema = {name: part for name, part in schema.items() if (name, part) != ("schemaType", "AVRO")}
        if "schemaType" not in schema:
            parsed = json.loads(schema["schema"])  # {"type": "long"} is "long"
            schema["schema"] = json.dumps(parsed["type"] if isinstance(parsed, dict) and len(parsed) == 1 else parsed)
        if schema not in self.schemas:
            self.schemas.append(schema)
        id = self.schemas.index(schema) + 1
        if id not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(id)
        return id

    def answer(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Returns the status and the answer to a request."""
        match method, path:
            case "GET", ["schemas", "ids", id] if int(id) <= len(self.schemas):
                return 200, self.schemas[int(id) - 1]
            case "GET", ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "POST", ["subjects", subject, "versions"]:
                schema = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
                if subject in self.frozen:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                return 200, {"id": self.register(subject, schema)}
            case "GET", ["subjects", subject, "versions", number] if subject in self.subjects:
                ids = self.subjects[subject]
                version = len(ids) if number == "latest" else int(number)
                if version <= len(ids):
                    id = ids[version - 1]
                    return 200, {"subject": subject, "version": version, "id": id, **self.schemas[id - 1]}
                return 404, {"error_code": 40402, "message": "Version not found"}
            case _, ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def serving(registry: Registry, certificate: Path | None = None) -> Iterator[Registry]:
    """Serves a registry on a free port of loopback; its `url` is then the address. With a certificate, by TLS."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            registry.requests.append(f"{self.command} {self.path}")
            expected = registry.user and "Basic " + base64.b64encode(registry.user.encode()).decode()
            if expected and self.headers.get("Authorization") != expected:
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = registry.answer(self.command, path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
