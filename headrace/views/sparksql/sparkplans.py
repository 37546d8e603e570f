"""What ad-hoc SQL on Spark may say: the plan that Spark's own parser gives may hold only nodes that are known here.

Everything is refused that is not on a list: commands, hints, scripts, other catalogs, files by their paths, functions
that reach out of the statement. A second look, at the analyzed plan, finds what it would really read.
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
# What holds no part of a statement.
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
    """The statement may not run."""


def check(plan: Any, tables: Collection[str]) -> None:
    """Refuses a parsed plan that is not a query of these tables alone."""
    nodes = list(_nodes(plan))
    named = {str(name).lower() for kind, node in nodes if kind == "UnresolvedWith" for name in _names(node)}
    allowed = named | {name.lower() for name in tables}
    for kind, node in nodes:
        if kind == "UnresolvedFunction":
            _check_function(_texts(node.nameParts()))
        elif kind == "UnresolvedGenerator":
            _check_function([str(node.name().unquotedString())])
        elif kind == "UnresolvedAttribute":
            if "_metadata" in (part.lower() for part in _texts(node.nameParts())):
                raise Refused("the column _metadata is not for ad-hoc SQL; it tells where files are")
        elif kind == "UnresolvedRelation":
            name = ".".join(_texts(node.multipartIdentifier()))
            if name.lower() not in allowed:
                raise Refused(f"there is no table {name!r}; there are {', '.join(sorted(tables))}")
            if len(node.options()) or node.isStreaming():
                raise Refused(f"the table {name!r} has no options; leave them out")


def check_read(analyzed: Any, files: Collection[str]) -> None:
    """Refuses an analyzed plan that reads more than these files and what it was given in memory."""
    for plan in (analyzed, *_each(analyzed.subqueriesAll())):
        for leaf in _each(plan.collectLeaves()):
            kind = str(leaf.getClass().getSimpleName())
            if kind not in _READ:
                raise Refused(f"{kind} is not for ad-hoc SQL; a statement reads its tables alone")
            if kind == "LogicalRelation":
                read = {str(path.toUri().getPath()) for path in _each(leaf.relation().location().rootPaths())}
                if not read <= set(files):
                    raise Refused("the statement reads files that are not of its tables")


def _nodes(plan: Any) -> Iterator[tuple[str, Any]]:
    """All nodes of a plan, with the names of their classes; refuses what is not known."""
    rest, count = [plan], 0
    while rest:  # no recursion, which a deep statement would exhaust
        each = rest.pop()
        if not hasattr(each, "getClass"):
            continue  # text, a number: py4j has made it a value of Python
        kind = str(each.getClass().getName())
        package, dot, name = kind.rpartition(".")
        catalyst = (package + dot).startswith(_CATALYST)
        if kind.startswith("scala.collection.") or kind in ("scala.Some", "scala.None$"):
            rest += _each(each)
        elif kind.startswith("scala.Tuple"):
            rest += _each(each.productIterator())
        elif name in _PLANS | _EXPRESSIONS and catalyst:
            count += 1
            if count > _MOST_NODES:
                raise Refused(f"the statement has more than {_MOST_NODES:,} parts; ask for less at once")
            yield name, each
            rest += _each(each.productIterator())
        elif not (name in _DATA and catalyst) and not _plain(kind):
            raise Refused(f"{name.rstrip('$')} is not for ad-hoc SQL; only SELECT over its tables is run")


def _plain(kind: str) -> bool:
    """Whether a class is one of types, settings of a cast, identifiers and the like, which do nothing."""
    return kind.startswith("org.apache.spark.sql.types.") or kind in (
        "java.util.UUID",
        "org.apache.spark.sql.util.CaseInsensitiveStringMap",
        "scala.Enumeration$Val",
        "scala.runtime.BoxedUnit",
    )


def _check_function(name: list[str]) -> None:
    if len(name) != 1 or name[0].lower() not in FUNCTIONS:
        raise Refused(f"the function {'.'.join(name)} is not for ad-hoc SQL")


def _names(node: Any) -> list[str]:
    """The names of the queries of a WITH."""
    return [str(pair._1()) for pair in _each(node.cteRelations())]


def _texts(names: Any) -> list[str]:
    return [str(each) for each in _each(names)]


def _each(found: Any) -> list[Any]:
    """What a Scala collection or iterator has."""
    iterator, values = found.iterator(), []
    while iterator.hasNext():
        values.append(iterator.next())
    return values
