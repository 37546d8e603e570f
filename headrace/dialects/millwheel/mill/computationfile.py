"""Computations in files: FILE.py:CLASS, imported so that workers can import it, too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from headrace.dialects.millwheel.api.computation import Computation
from headrace.dialects.millwheel.api.recordsandtimers import ComputationError


def load_computation(source: str) -> Computation:
    """Makes a computation of a class in a file.

    >>> load_computation("nowhere.py:Windower")
    Traceback (most recent call last):
        ...
    headrace.dialects.millwheel.api.recordsandtimers.ComputationError: there is no file nowhere.py; write FILE.py:CLASS, e.g. zeitgeist.py:Windower
    """  # noqa: E501 (the message is one line)
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not file or not name.isidentifier() or path.suffix != ".py" or not path.is_file():
        what = f"there is no file {file}" if file and path.suffix == ".py" else f"{source!r} names no class in a file"
        raise ComputationError(f"{what}; write FILE.py:CLASS, e.g. zeitgeist.py:Windower")
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.import_module(path.stem)
    if module.__file__ is None or Path(module.__file__).resolve() != path:
        raise ComputationError(
            f"{path} has the name of the module {module.__name__} ({module.__file__}), which workers would import "
            "instead; give the file another name"
        )
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Computation) and kind.inputs):
        names = [
            each
            for each, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Computation) and value.inputs
        ]
        raise ComputationError(f"{path} has no computation {name!r}; there are: {', '.join(names) or 'none'}")
    return kind()
