"""The rules of ad-hoc SQL on Spark: a plan, as Spark's own parser returns it, may have only nodes that are listed here.

Everything else is refused: commands, hints, scripts, other catalogs, files by their paths, functions that reach out of
the statement. A second check, of the analyzed plan, finds what it would really read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from headrace.views.sparksql.sparkfunctions import FUNCTIONS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_NODES: Final = 20_000
_CATALYST: Final = "org.apache.spark.sql.catalyst."

_PLANS: Final = _words("""
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LocalLimit LocalRelation Offset
    OneRowRelation Pivot Project Sample Sort SubqueryAlias Tail Union UnresolvedHaving UnresolvedInlineTable
    UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedWith WithWindowDefinition
""")
_EXPRESSIONS: Final = _words("""
    Add Alias And Ascending$ AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat
    CreateNamedStruct CreateStruct$ Cross$ Cube CurrentDate CurrentRow$ CurrentTimestamp Descending$ Divide
    EqualNullSafe EqualTo Exists FullOuter$ GreaterThan GreaterThanOrEqual GroupingSets ILike In InSubquery Inner$
    IntegralDivide IsNotNull IsNull JoinHint LambdaFunction LeftAnti$ LeftOuter$ LeftSemi$ LessThan
    LessThanOrEqual Like LikeAll LikeAny ListQuery MultiAlias Multiply NaturalJoin Not NotLikeAll NotLikeAny
    NullsFirst$ NullsLast$ Or Overlay RLike RangeFrame$ Remainder RightOuter$ Rollup RowFrame$ ScalarSubquery
    SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight Substring Subtract
    TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$ UnresolvedAlias
    UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
    UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedStar UnresolvedStarExceptOrReplace
    UnresolvedWindowExpression UnspecifiedFrame$ UsingJoin WindowExpression WindowSpecDefinition
    WindowSpecReference
""")
# Values that have no parts of a statement in them.
_DATA: Final = _words("""
    AliasIdentifier ExprId FunctionIdentifier GenericInternalRow Literal NumericEvalContext
    SampleMethod$Bernoulli$
""")
_READ: Final = {
    "OneRowRelation": "nothing",
    "LocalRelation": "rows of the statement, or of a table in memory",
    "CTERelationRef": "a query of the statement",
    "LogicalRelation": "files, which are looked at",
    "UnionLoopRef": "a query of the statement that repeats",
}


class Refused(Exception):
    """The statement is not allowed."""


def check(plan: Any, tables: Collection[str]) -> None:
    """Refuses a parsed plan that is not a query of these tables only."""
    for kind, node, scope in _nodes(plan, frozenset(name.lower() for name in tables)):
        if kind == "UnresolvedFunction":
            _check_function(_texts(node.nameParts()))
        elif kind == "UnresolvedGenerator":
            _check_function([str(node.name().unquotedString())])
        elif kind == "UnresolvedAttribute":
            if "_metadata" in (part.lower() for part in _texts(node.nameParts())):
                raise Refused("the column _metadata is not allowed in ad-hoc SQL; it has the paths of files")
        elif kind == "UnresolvedRelation":
            parts = _texts(node.multipartIdentifier())
            name = ".".join(parts)
            if len(parts) != 1 or name.lower() not in scope:
                raise Refused(f"there is no table {name!r}; there are {', '.join(sorted(tables))}")
            if len(node.options()) or node.isStreaming():
                raise Refused(f"the table {name!r} has no options; leave them out")


def check_read(analyzed: Any, files: Collection[str]) -> None:
    """Refuses an analyzed plan that reads more than these files and its tables in memory."""
    for plan in (analyzed, *_items(analyzed.subqueriesAll())):
        for leaf in _items(plan.collectLeaves()):
            kind = str(leaf.getClass().getSimpleName())
            if kind not in _READ:
                raise Refused(f"{kind} is not allowed in ad-hoc SQL; a statement reads only its tables")
            if kind == "LogicalRelation":
                read = {str(path.toUri().getPath()) for path in _items(leaf.relation().location().rootPaths())}
                if not read <= set(files):
                    raise Refused("the statement reads files that are not of its tables")


def _nodes(plan: Any, tables: frozenset[str]) -> Iterator[tuple[str, Any, frozenset[str]]]:
    """Yields all nodes of a plan with the names of their classes and of the tables in scope; refuses unknown ones."""
    rest, count = [(plan, tables)], 0
    while rest:  # no recursion, which a deep statement would exhaust
        node, scope = rest.pop()
        if not hasattr(node, "getClass"):
            continue  # text or a number, which py4j converts to Python
        kind = str(node.getClass().getName())
        package, dot, name = kind.rpartition(".")
        catalyst = (package + dot).startswith(_CATALYST)
        if kind.startswith("scala.collection.") or kind in ("scala.Some", "scala.None$"):
            rest += [(item, scope) for item in _items(node)]
        elif kind.startswith("scala.Tuple"):
            rest += [(item, scope) for item in _items(node.productIterator())]
        elif name in _PLANS | _EXPRESSIONS and catalyst:
            count += 1
            if count > _MOST_NODES:
                raise Refused(f"the statement has more than {_MOST_NODES:,} parts; query less at once")
            yield name, node, scope
            if name == "UnresolvedWith":
                rest += _scopes(node, scope)
            else:
                rest += [(item, scope) for item in _items(node.productIterator())]
        elif not (name in _DATA and catalyst) and not _is_plain(kind):
            raise Refused(f"{name.rstrip('$')} is not allowed in ad-hoc SQL; only SELECT over its tables is")


def _scopes(node: Any, scope: frozenset[str]) -> list[tuple[Any, frozenset[str]]]:
    """Returns the queries of a WITH, each with the names before it, and its own if it may repeat; then what follows."""
    queries = []
    for relation in _items(node.cteRelations()):
        outer, scope = scope, scope | {str(relation._1()).lower()}
        queries.append((relation, scope if node.allowRecursion() else outer))
    return [*queries, (node.child(), scope)]


def _is_plain(kind: str) -> bool:
    """Returns whether a class is of types, settings of a cast, identifiers and the like, which do nothing."""
    return kind.startswith("org.apache.spark.sql.types.") or kind in (
        "java.util.UUID",
        "org.apache.spark.sql.util.CaseInsensitiveStringMap",
        "scala.Enumeration$Val",
        "scala.runtime.BoxedUnit",
    )


def _check_function(name: list[str]) -> None:
    if len(name) != 1 or name[0].lower() not in FUNCTIONS:
        raise Refused(f"the function {'.'.join(name)} is not allowed in ad-hoc SQL")


def _texts(names: Any) -> list[str]:
    return [str(name) for name in _items(names)]


def _items(collection: Any) -> list[Any]:
    """Returns the items of a Scala collection or iterator."""
    iterator, values = collection.iterator(), []
    while iterator.hasNext():
        values.append(iterator.next())
    return values
