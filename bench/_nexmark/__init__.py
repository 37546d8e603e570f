"""Nexmark's queries as its rivals and a recount have them, one module for each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[2])
sys.path.append(_ROOT)  # for the examples, here and in Python workers
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
