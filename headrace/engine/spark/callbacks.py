"""Callbacks from Spark's JVM into Python, such as those of foreachBatch: they want a secret.

PySpark listens on loopback for them and asks for none, so that any user of the machine could call what Spark may call.
Py4J has tokens for both directions; but when PySpark tells the JVM its port, Py4J forgets the token there.
"""

from __future__ import annotations

import secrets
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.java_gateway import ensure_callback_server_started


def authenticate_callbacks(gateway: Any) -> None:
    """Starts to listen for callbacks, and refuses those without a token that only this process and its JVM know."""
    token = secrets.token_hex(32)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    field = getattr(gateway.jvm, "java.lang.Class").forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
    gateway.callback_server_parameters.auth_token = token
