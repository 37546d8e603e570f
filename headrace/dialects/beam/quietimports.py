"""Imports Beam without the line that it logs where Google's client libraries are not installed.

Every worker would write it. Beam logs it by the root logger, which besides gets a handler by that.
"""

from __future__ import annotations

import importlib
import logging


def import_beam() -> None:
    """Imports Beam; all else that it logs is logged."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(_is_other)
    try:
        importlib.import_module("apache_beam")
    finally:
        root.removeFilter(_is_other)
        root.removeHandler(handler)


def _is_other(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("apitools not found")
