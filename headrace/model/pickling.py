"""Pickles users' objects: by reference where their classes can be imported, by value where they cannot.

Only what this package pickled is ever unpickled, and only inside one run.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping


def dumps(value: object) -> bytes:
    """Pickles a value, also one whose class is defined in a function or a notebook.

    >>> def point():
    ...     class Point:
    ...         x = 1
    ...     return Point()
    >>> pickle.loads(dumps(point())).x
    1
    """
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle  # slower, and rarely needed

        by_value: bytes = cloudpickle.dumps(value, protocol=5)
        return by_value


def classes_of_script() -> dict[str, type]:
    """Returns the classes that the user's script or notebook defines, which no other process can import."""
    script = sys.modules["__main__"]
    return {
        name: kind for name, kind in vars(script).items() if isinstance(kind, type) and kind.__module__ == "__main__"
    }


def define_in_script(classes: Mapping[str, type]) -> None:
    """Defines the classes of the user's script in a worker, under the names that their pickles use."""
    for name, kind in classes.items():
        setattr(sys.modules["__main__"], name, kind)
