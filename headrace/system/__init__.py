"""A system: the log, the archive, the layers of all views and the server of one app."""

from headrace.system.home import Home
from headrace.system.system import System

__all__ = ["Home", "System"]
