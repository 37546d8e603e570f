"""An app: the topics and views that one Python file declares."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model.errors import HeadraceError
from headrace.views.declare.declarations import Topic, View
from headrace.views.errors import ViewError


@dataclass(frozen=True)
class App:
    """The topics and views of an app, by name.

    >>> import headrace as hr
    >>> clicks = hr.Topic("clicks", schema="user string")
    >>> @hr.view(clicks)
    ... def per_user(events):
    ...     return events | hr.GroupBy("user").aggregate(n=hr.count())
    >>> app = App.of({"clicks": clicks, "per_user": per_user, "other": 3})
    >>> list(app.topics), list(app.views)
    (['clicks'], ['per_user'])
    """

    topics: Mapping[str, Topic]
    views: Mapping[str, View]

    @staticmethod
    def load(path: str | Path) -> App:
        """Runs a Python file and returns the app that it declares. It can import modules that lie beside it."""
        file = Path(path)
        if not file.is_file():
            raise ViewError(f"there is no file {str(file)!r}; an app is a Python file with hr.Topic(...) and @hr.view")
        if (folder := str(file.resolve().parent)) not in sys.path:
            sys.path.insert(0, folder)
        try:
            names = runpy.run_path(str(file), run_name="headrace_app")
        except HeadraceError:
            raise
        except Exception as error:
            raise ViewError(f"{_place(error, file)}: {type(error).__name__}: {error}") from error
        return App.of(names, str(file))

    @staticmethod
    def of(names: Mapping[str, Any], origin: str = "the app") -> App:
        """Returns the app of a module's names."""
        declared = {id(value): value for value in names.values() if isinstance(value, Topic | View)}.values()
        views = [value for value in declared if isinstance(value, View)]
        topics = [value for value in declared if isinstance(value, Topic)] + [view.topic for view in views]
        if not views:
            raise ViewError(f"{origin} declares no view; write a function with @hr.view(topic, ...)")
        return App(_by_name("topics", topics, origin), _by_name("views", views, origin))


def _place(error: Exception, file: Path) -> str:
    """Returns the file, and the last line of it that ran."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def _by_name(kind: str, declared: list[Any], origin: str) -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    for declaration in declared:
        if by_name.setdefault(declaration.name, declaration) != declaration:
            raise ViewError(f"{origin} declares two {kind} with the name {declaration.name!r}; names must differ")
    folded: dict[str, str] = {}
    for name in by_name:
        if (other := folded.setdefault(name.lower(), name)) != name:
            raise ViewError(f"{origin} declares {kind} {other!r} and {name!r}; names must differ by more than case")
    return by_name
