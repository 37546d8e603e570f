"""The server: views, topics and ad-hoc SQL over HTTP. It reads stores and appends to logs, and needs no Spark."""

from headrace.server.application import application
from headrace.server.limits import Limits
from headrace.server.security.proxies import Proxies
from headrace.server.security.tokens import Tokens
from headrace.server.server import Server
from headrace.server.service import Service

__all__ = ["Limits", "Proxies", "Server", "Service", "Tokens", "application"]
