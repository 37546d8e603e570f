"""Runs every example of the docstrings, the README and the docs, and checks what the pages point to.

A page's examples are its ``` blocks with `>>>` prompts; those of one page share their names.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace
from tests.scale import FULL

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)
OWN_SPARK = ROOT / "headrace/views/adhoc/sparkengine.py"  # whose example starts a JVM, and whose tests do the same
MODULES = [
    path
    for path in sorted(ROOT.glob("headrace/**/*.py"))
    if EXAMPLE.search(path.read_text("utf-8")) and (FULL or path != OWN_SPARK)
]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def needs_spark(path: Path) -> bool:
    """Whether a module's examples run on Spark, as far as their source tells; the suite fails if it is mistaken."""
    lines = re.findall(r"^\s*(?:>>>|\.\.\.) (.*)", path.read_text("utf-8"), re.MULTILINE)
    return any(re.search(r"\bPipeline\(|\bspark|\bLocalCluster\(|\bMill\(|\bSystem\.at\(", line) for line in lines)


def run(tests: list[doctest.DocTest]) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    attempted = sum(runner.run(test, out=report.append).attempted for test in tests)
    assert not report, "".join(report)
    assert attempted > 0


# Asking for the session gives examples that need Spark one with the suite's settings, not their own.
@pytest.mark.parametrize("path", [path for path in MODULES if needs_spark(path)], ids=relative)
def test_examples_of_docstrings_on_spark(path: Path, spark: SparkSession) -> None:
    run_docstrings(path)


@pytest.mark.slow("some examples start a Spark of their own")
@pytest.mark.parametrize("path", [path for path in MODULES if not needs_spark(path)], ids=relative)
def test_examples_of_docstrings(path: Path) -> None:
    run_docstrings(path)


def run_docstrings(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    run(doctest.DocTestFinder().find(importlib.import_module(name)))


@pytest.mark.slow("runs every example of a page")
@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text("utf-8")], ids=relative)
def test_examples_of_pages(page: Path, spark: SparkSession) -> None:
    source = only_examples(page.read_text("utf-8"))
    parser = doctest.DocTestParser()
    run([parser.get_doctest(source, {"__name__": "__main__"}, relative(page), str(page), 0)])


def test_public_names_have_running_examples() -> None:
    public = {name: getattr(headrace, name) for name in headrace.__all__}
    documented = {name: value for name, value in public.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert documented
    assert [name for name, value in documented.items() if ">>>" not in (value.__doc__ or "")] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_make_commands_of_pages_exist(page: Path) -> None:
    assert quoted_targets(page.read_text("utf-8")) <= makefile_targets()


def test_readme_quotes_the_two_commands() -> None:
    assert {"demo", "test"} <= quoted_targets((ROOT / "README.md").read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_relative_links_of_pages_lead_somewhere(page: Path) -> None:
    prose = "\n".join(line for language, line in lines_by_block(page.read_text("utf-8")) if language is None)
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose)
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_prose_of_pages_is_wrapped_at_100(page: Path) -> None:
    """Tables, code and pictures are as long as they are."""
    prose = [line for block, line in lines_by_block(page.read_text("utf-8")) if block is None]
    assert [line for line in prose if len(line) > 100 and not line.startswith(("|", "![", "["))] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_modules_that_pages_name_exist(page: Path) -> None:
    """A path such as `engine/shard/clocks.py` or, in a picture, `engine/shard/clocks`."""
    folders = "|".join(path.name for path in (ROOT / "headrace").iterdir() if path.is_dir())
    paths = set(re.findall(rf"(?<![\w./])(?:headrace/)?((?:{folders})/[\w/]+(?:\.\w+)?)", page.read_text("utf-8")))
    known = [ROOT / "headrace", ROOT / "tests", ROOT / "examples"]
    assert [
        path
        for path in sorted(paths)
        if not any((root / path).exists() or (root / f"{path}.py").exists() for root in known)
    ] == []


def test_fences_are_no_part_of_an_example() -> None:
    page = "Text `>>> 1`\n```python\n>>> 1 + 1\n2\n```\n  ```sh\n  make x  # y\n  ```\n`make -s z A=1` make do"
    assert only_examples(page) == "\n\n>>> 1 + 1\n2\n\n\n\n\n"
    assert quoted_targets(page) == {"x", "z"}


def lines_by_block(page: str) -> Iterator[tuple[str | None, str]]:
    """Each line with the language of its fenced block ("" if unnamed, None outside a block); fences go blank.

    Blanking keeps line numbers, and ends the expected output of a block's last example where the block ends.
    """
    language: str | None = None
    for line in page.splitlines():
        fence = re.match(r"\s*```\s*(\w*)", line)
        if fence is None:
            yield language, line
        else:
            language = fence[1] if language is None else None
            yield None, ""


def only_examples(page: str) -> str:
    return "\n".join(line if language in ("python", "pycon") else "" for language, line in lines_by_block(page))


def quoted_targets(page: str) -> set[str]:
    """The targets of every `make ...` in the page's shell blocks and `code spans`."""
    blocks = list(lines_by_block(page))
    commands = [line for language, line in blocks if language in ("", "sh", "bash", "shell", "console")]
    for language, line in blocks:
        if language is None:
            commands += re.findall(r"`([^`]+)`", line)
    words = [re.match(r"\s*(?:\$ )?(?:\w+=\S+ )*make((?: +[\w=./-]+)*)", command) for command in commands]
    targets = [word for match in words if match for word in match[1].split()]
    return {target for target in targets if "=" not in target and not target.startswith("-")}


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
