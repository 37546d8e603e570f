"""`headrace init`: makes a small project with a pipeline, its test and a view, to begin from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from headrace.commands.errors import errors_as_messages
from headrace.model.errors import HeadraceError


class ProjectError(HeadraceError, ValueError):
    """A project cannot be made where it was asked for."""


def init(
    name: Annotated[Path, typer.Argument(help="The directory of the project, which must be new or empty.")],
) -> None:
    """Make a project with a pipeline, its test and a view, to begin from."""
    with errors_as_messages(ProjectError, OSError):
        made = make_project(name)
    print(f"{name}: {', '.join(made)}")
    print(f"Next: cd {name} && headrace run pipeline.py && pytest")


def make_project(folder: Path) -> list[str]:
    """Writes the files of a project to a new directory; returns their names.

    >>> import tempfile
    >>> make_project(Path(tempfile.mkdtemp()) / "shop")
    ['README.md', 'pipeline.py', 'test_pipeline.py', 'views.py', 'visits.jsonl']
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{str(folder)!r} exists and is not empty; give a project a directory of its own")
    folder.mkdir(parents=True, exist_ok=True)
    templates = files("headrace.commands").joinpath("project").iterdir()
    texts = {
        each.name.removesuffix(".txt"): each.read_text("utf-8") for each in templates if each.name.endswith(".txt")
    }
    for name, text in texts.items():
        (folder / name).write_text(text.replace("NAME", folder.resolve().name), "utf-8")
    return sorted(texts)
