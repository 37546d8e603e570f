from __future__ import annotations

from tests.log.conftest import log

__all__ = ["log"]  # a fixture
