"""Holds the tree to its layers: every import goes down, also inside functions, and Spark stays where it belongs.

LAYERS is the order: a module may import from its own layer and from those before it. DOORS are the two imports that go
up, where a pipeline is run and explained.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "headrace"

LAYERS = (
    "headrace.model",
    "headrace.local",
    "headrace.log",
    "headrace.edges",
    "headrace.engine.columns",
    "headrace.engine.worker",
    "headrace.engine.aggregation",
    "headrace.engine.shard",
    "headrace.engine.incremental",
    "headrace.engine.timely",
    "headrace.engine.stateful",
    "headrace.engine.sides",
    "headrace.engine.plan",
    "headrace.engine.handle",
    "headrace.engine.settings",
    "headrace.engine.explain",
    "headrace.engine.spark",
    "headrace.engine.catalyst",
    "headrace.engine.checkpoint",
    "headrace.engine.connectors",
    "headrace.engine.state",
    "headrace.engine.batch",
    "headrace.engine.stream",
    "headrace.engine",
    "headrace.testing",
    "headrace.server.http",  # it knows no view
    "headrace.server.security",
    "headrace.views.errors",
    "headrace.views.offsets",
    "headrace.views.declare",
    "headrace.views.query",
    "headrace.views.stores",
    "headrace.views.feeds",
    "headrace.views.adhoc",
    "headrace.views.archive",
    "headrace.views.master",
    "headrace.views.layers",
    "headrace.views.sparksql",
    "headrace.views",
    "headrace.server.limits",
    "headrace.server.ingestion",
    "headrace.server.service",
    "headrace.server.routes",
    "headrace.server.page",
    "headrace.server.application",
    "headrace.server.server",
    "headrace.server.process",
    "headrace.server",
    "headrace.dialects",
    "headrace.system",
    "headrace",
    "headrace.commands",
    "headrace.__main__",
)
DOORS = {
    ("headrace.model.pipeline", "headrace.engine.run"),
    ("headrace.model.pipeline", "headrace.engine.explain"),
}
WITHOUT_SPARK = (
    *LAYERS[: LAYERS.index("headrace.engine.spark")],
    *LAYERS[LAYERS.index("headrace.testing") : LAYERS.index("headrace.views.master")],
    *LAYERS[LAYERS.index("headrace.server.limits") : LAYERS.index("headrace.dialects")],
)
ALSO_WITHOUT_SPARK = ("headrace",)


class Import(NamedTuple):
    """An import of one module of the tree by another."""

    module: str
    imported: str
    line: int
    at_load: bool  # when the module is loaded, rather than inside a function or for types only


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def layer_of(module: str) -> int:
    """The number of the longest layer that the module is in."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in LAYERS:
            return LAYERS.index(name)
    raise AssertionError(f"{module} is in no layer")


def imports_of(module: str) -> Iterator[Import]:
    """All imports of a module, of whatever package."""

    def visit(node: ast.AST, at_load: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(module, alias.name, child.lineno, at_load) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}:{child.lineno}: a relative import"
                for alias in child.names:
                    name = f"{child.module}.{alias.name}"
                    yield Import(module, name if name in MODULES else str(child.module), child.lineno, at_load)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from visit(child, at_load and not inside and not typing)

    yield from visit(ast.parse(MODULES[module].read_text("utf-8")), True)


@cache
def all_imports() -> dict[str, list[Import]]:
    return {module: list(imports_of(module)) for module in MODULES}


def test_imports_go_down() -> None:
    upwards = [
        f"{each.module}:{each.line} imports {each.imported}"
        for imports in all_imports().values()
        for each in imports
        if each.imported in MODULES
        and layer_of(each.imported) > layer_of(each.module)
        and (each.module, each.imported) not in DOORS
    ]
    assert upwards == []


def test_doors_are_used() -> None:
    used = {(each.module, each.imported) for imports in all_imports().values() for each in imports}
    assert used >= DOORS


def loaded_by(module: str) -> Iterator[Import]:
    """What is imported when the module is loaded: its own imports and those of its packages."""
    parts = module.split(".")
    for length in range(2, len(parts) + 1):  # the package headrace itself is tested by itself
        yield from (each for each in all_imports().get(".".join(parts[:length]), ()) if each.at_load)


def chain_to_spark(module: str) -> list[str] | None:
    """A chain of imports by which loading the module loads Spark, if there is one."""
    chains: dict[str, list[str]] = {module: [module]}
    waiting = [module]
    while waiting:
        reached = waiting.pop(0)
        for each in loaded_by(reached):
            if each.imported.partition(".")[0] in ("pyspark", "py4j"):
                return [*chains[reached], each.imported]
            if each.imported in MODULES and each.imported not in chains:
                chains[each.imported] = [*chains[reached], each.imported]
                waiting.append(each.imported)
    return None


def is_without_spark(module: str) -> bool:
    return LAYERS[layer_of(module)] in WITHOUT_SPARK or module in ALSO_WITHOUT_SPARK


@pytest.mark.parametrize("layer", [*WITHOUT_SPARK, *ALSO_WITHOUT_SPARK])
def test_no_chain_of_imports_leads_to_spark(layer: str) -> None:
    modules = [module for module in MODULES if module == layer or LAYERS[layer_of(module)] == layer != "headrace"]
    assert modules
    chains = [" -> ".join(chain) for module in modules if (chain := chain_to_spark(module)) is not None]
    assert chains == []


@pytest.mark.parametrize("layer", WITHOUT_SPARK)
def test_layers_without_spark_name_it_nowhere(layer: str) -> None:
    """Not inside functions either."""
    named = [
        f"{each.module}:{each.line} imports {each.imported}"
        for module, imports in all_imports().items()
        if LAYERS[layer_of(module)] == layer
        for each in imports
        if each.imported.partition(".")[0] in ("pyspark", "py4j")
    ]
    assert named == []


def test_every_layer_has_modules() -> None:
    assert [layer for layer in LAYERS if not any(LAYERS[layer_of(module)] == layer for module in MODULES)] == []
