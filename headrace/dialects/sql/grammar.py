"""The grammar of continuous SQL: Spark's as sqlglot parses it, windows as tables, EMIT, and statements about streams.

Functions stay as they are written, so that Spark gets the text that the user wrote, and not what sqlglot thinks is the
same. What the statements mean is in `statements`, what queries mean in `planner`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NoReturn, TypeVar

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

T = TypeVar("T")

WINDOW_TABLES: Final = ("TUMBLE", "HOP", "SESSION")


class WindowTable(exp.Expression, exp.Func):
    """A table in windows: TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' MINUTE) and its kin."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "time": True, "sizes": True, "keys": False}


class Rows(exp.Expression):
    """A number of rows as the size of windows: 100 ROWS."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Emit(exp.Expression):
    """EMIT: when results are emitted. `phases` are lists of conditions; the next begins when one before has emitted."""

    arg_types: ClassVar[dict[str, bool]] = {"phases": True, "lateness": False}


class Phase(exp.Expression):
    """Conditions of EMIT that are joined by AND."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class After(exp.Expression):
    """One condition of EMIT: AFTER WATERMARK, DELAY, COUNT or PERCENTILE, with its value."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class Watermark(exp.Expression):
    """WATERMARK FOR column AS expression, among the columns of a stream."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class CreateStream(exp.Expression):
    """CREATE STREAM name (columns, watermark) WITH (options)."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "watermark": False,
        "options": False,
        "exists": False,
    }


class CreateTable(exp.Expression):
    """CREATE TABLE name (columns) WITH (options)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": False, "options": False, "exists": False}


class CreateQuery(exp.Expression):
    """CREATE CONTINUOUS VIEW or TRANSFORM name WITH (options) AS query."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "kind": True,
        "query": True,
        "options": False,
        "exists": False,
        "into": False,
    }


class DropObject(exp.Expression):
    """DROP STREAM, TABLE, VIEW or TRANSFORM name."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "exists": False}


class ShowObjects(exp.Expression):
    """SHOW STREAMS, TABLES, VIEWS or TRANSFORMS."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True}


class CopyRows(exp.Expression):
    """COPY stream (columns) FROM 'file' or STDIN (FORMAT name, HEADER true)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": False, "file": False, "options": False}


class OnView(exp.Expression):
    """SUBSCRIBE to a view; PAUSE or RESUME one."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class ExplainQuery(exp.Expression):
    """EXPLAIN a query."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


_WORDS_AS_ARGUMENTS: Final = (
    "CAST",
    "TRY_CAST",
    "EXTRACT",
    "TRIM",
    "POSITION",
    "SUBSTRING",
    "OVERLAY",
    "CEIL",
    "FLOOR",
)
"""Functions with words among their arguments, as in CAST(x AS INT)."""

_COMMANDS: Final = ("SUBSCRIBE", "PAUSE", "RESUME", "EXPLAIN", "SHOW")
_STORED: Final = ("STREAM", "TABLE")
_KINDS: Final = ("STREAM", "TABLE", "VIEW", "TRANSFORM")


class ContinuousParser(SparkParser):
    """Parses statements of continuous SQL."""

    # Without an entry here a function is a name and its arguments.
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNC_TOKENS: ClassVar[set[TokenType]] = {*SparkParser.FUNC_TOKENS, TokenType.SESSION}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: SparkParser.FUNCTION_PARSERS[name] for name in _WORDS_AS_ARGUMENTS},
        **{name: (lambda self, name=name: self.parse_window_table(name)) for name in WINDOW_TABLES},
    }

    def _expect(self, parsed: T | None, reason: str) -> T:
        """Returns what was parsed; refuses the statement if that is nothing."""
        return parsed or self._refuse(reason)

    def _refuse(self, reason: str) -> NoReturn:
        self.raise_error(reason)
        raise AssertionError(reason)  # sqlglot raises at once

    def _parse_statement(self) -> Any:
        word = self._curr.text.upper() if self._curr else ""
        if word in _COMMANDS and self._curr.token_type != TokenType.STRING:
            self._advance()
            return self._parse_command_of_ours(word)
        return super()._parse_statement()

    def _parse_command_of_ours(self, word: str) -> exp.Expr:
        if word == "EXPLAIN":
            return self.expression(ExplainQuery(this=self._parse_statement()))
        if word == "SHOW":
            for kind in _KINDS:
                if self._match_text_seq(f"{kind}S"):
                    return self.expression(ShowObjects(kind=kind))
            self._refuse("SHOW is followed by STREAMS, TABLES, VIEWS or TRANSFORMS")
        self._match_text_seq("TO")
        self._match_text_seq("VIEW")
        return self.expression(OnView(this=self._parse_id_var(), kind=word))

    def _parse_copy(self) -> Any:
        name, columns = self._parse_id_var(), None
        if self._match(TokenType.L_PAREN):
            columns = self._parse_csv(self._parse_id_var)
            self._match_r_paren()
        self._expect(self._match(TokenType.FROM), "COPY stream is followed by FROM and a file, or STDIN")
        file = (
            None if self._match_text_seq("STDIN") else self._expect(self._parse_string(), "FROM takes 'file' or STDIN")
        )
        options: list[exp.Expr] = []
        self._match(TokenType.WITH)
        if self._match(TokenType.L_PAREN):
            options = self._parse_csv(self._parse_copy_option)
            self._match_r_paren()
        return self.expression(CopyRows(this=name, columns=columns, file=file, options=options))

    def _parse_copy_option(self) -> exp.Expr:
        """Parses FORMAT csv, HEADER, or HEADER true."""
        name = self._expect(self._parse_var(any_token=True), "an option is a name and a value, as in (FORMAT csv)")
        self._match(TokenType.EQ)
        value: exp.Expr | None = exp.Boolean(this=True)
        if self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            value = self._parse_boolean() or self._parse_string() or self._parse_var(any_token=True)
        if isinstance(value, exp.Var):
            value = exp.Literal.string(value.name)
        return self.expression(exp.EQ(this=name, expression=value))

    def _parse_create(self) -> Any:
        start = self._index
        self._match_text_seq("CONTINUOUS") or self._match_text_seq("MATERIALIZED")
        for kind in _KINDS:
            if self._match_text_seq(kind):
                return self._parse_create_columns(kind) if kind in _STORED else self._parse_create_query(kind)
        self._retreat(start)
        self._refuse("CREATE is followed by STREAM, TABLE, CONTINUOUS VIEW or CONTINUOUS TRANSFORM")

    def _parse_create_columns(self, kind: str) -> exp.Expr:
        exists = self._parse_exists(not_=True)
        name = self._parse_id_var()
        columns: list[exp.Expr] = []
        watermark = None
        if self._match(TokenType.L_PAREN):
            while True:
                if kind == "STREAM" and self._match_text_seq("WATERMARK", "FOR"):
                    column = self._parse_id_var()
                    self._expect(self._match(TokenType.ALIAS), "WATERMARK FOR column is followed by AS")
                    watermark = self.expression(Watermark(this=column, expression=self._parse_assignment()))
                else:
                    columns.append(self._expect(self._parse_field_def(), "a column is a name and a type"))
                if not self._match(TokenType.COMMA):
                    break
            self._match_r_paren()
        options = self._parse_options()
        if kind == "TABLE":
            return self.expression(CreateTable(this=name, columns=columns, options=options, exists=exists))
        return self.expression(
            CreateStream(this=name, columns=columns, watermark=watermark, options=options, exists=exists)
        )

    def _parse_create_query(self, kind: str) -> exp.Expr:
        exists = self._parse_exists(not_=True)
        name = self._parse_id_var()
        into = self._parse_id_var() if kind == "TRANSFORM" and self._match(TokenType.INTO) else None
        options = self._parse_options()
        self._expect(self._match(TokenType.ALIAS), f"CREATE {kind} name is followed by AS and a SELECT")
        query = self._expect(self._parse_select(), "after AS comes a SELECT")
        return self.expression(
            CreateQuery(this=name, kind=kind, query=query, options=options, exists=exists, into=into)
        )

    def _parse_options(self) -> list[exp.Expr]:
        """Parses WITH (name = value, ...)."""
        if not self._match_pair(TokenType.WITH, TokenType.L_PAREN):
            return []
        options = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return options

    def _parse_option(self) -> exp.Expr | None:
        """Parses name = value; the name may be a word of the grammar, such as `from`."""
        if self._next is None or self._next.token_type != TokenType.EQ:
            return self._parse_assignment()
        name = self._parse_id_var(any_token=True)
        self._match(TokenType.EQ)
        return self.expression(exp.EQ(this=name, expression=self._parse_assignment()))

    def _parse_drop(self, exists: bool = False, kind: str | None = None) -> Any:
        for kind in _KINDS:
            if self._match_text_seq(kind):
                exists = exists or bool(self._parse_exists())
                return self.expression(DropObject(this=self._parse_id_var(), kind=kind, exists=exists))
        self._refuse("DROP is followed by STREAM, TABLE, VIEW or TRANSFORM")

    def parse_window_table(self, kind: str) -> exp.Expr:
        """Parses what is in the parentheses of a table in windows."""
        self._match(TokenType.TABLE)
        table = self._parse_table(alias_tokens=()) or self._refuse(f"{kind} takes TABLE name first")
        keys = None
        if self._match(TokenType.PARTITION_BY):
            keys = self._parse_csv(self._parse_column)
        if not (self._match(TokenType.COMMA) and self._match_text_seq("DESCRIPTOR", "(")):
            self._refuse(f"{kind} takes DESCRIPTOR(column), the column of the event time, after the table")
        time = self._parse_id_var()
        self._match_r_paren()
        sizes = []
        while self._match(TokenType.COMMA):
            size = self._parse_unary()
            sizes.append(self.expression(Rows(this=size)) if self._match_text_seq("ROWS") else size)
        return self.expression(WindowTable(this=table, kind=kind, time=time, sizes=sizes, keys=keys))

    def _parse_group(self, skip_group_by_token: bool = False) -> Any:
        """Parses GROUP BY. sqlglot takes a window function right behind it for the clause WINDOW."""
        if not (self._match(TokenType.GROUP_BY, advance=False) and self._next and self._next.text.upper() == "WINDOW"):
            return super()._parse_group(skip_group_by_token)
        self._advance()
        first = self._parse_disjunction()
        rest = super()._parse_group(skip_group_by_token=True) if self._match(TokenType.COMMA) else None
        group = rest or exp.Group()
        group.set("expressions", [first, *group.expressions])
        return group

    def _parse_table_alias(self, alias_tokens: Any = None) -> Any:
        return None if self._is_emit() else super()._parse_table_alias(alias_tokens)

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Query) and self._is_emit():
            self._advance()
            this.set("emit", self._parse_emit())
        return this

    def _is_emit(self) -> bool:
        return bool(
            self._curr and self._curr.text.upper() == "EMIT" and self._next and self._next.text.upper() == "AFTER"
        )

    def _parse_emit(self) -> exp.Expr:
        phases = [self._parse_phase()]
        while self._match(TokenType.THEN):
            phases.append(self._parse_phase())
        lateness = None
        if self._match_text_seq("WITH", "LATENESS"):
            lateness = self._expect(self._parse_interval(), "WITH LATENESS is followed by an INTERVAL")
        return self.expression(Emit(phases=phases, lateness=lateness))

    def _parse_phase(self) -> exp.Expr:
        conditions = [self._parse_after()]
        while self._match(TokenType.AND):
            conditions.append(self._parse_after())
        return self.expression(Phase(expressions=conditions))

    def _parse_after(self) -> exp.Expr:
        if self._match_text_seq("AFTER"):
            for kind in ("WATERMARK", "DELAY", "COUNT", "PERCENTILE"):
                if self._match_text_seq(kind):
                    value: exp.Expr | None = None
                    if kind == "DELAY":
                        value = self._expect(self._parse_interval(), "AFTER DELAY is followed by an INTERVAL")
                    elif kind != "WATERMARK":
                        value = self._expect(self._parse_number(), f"AFTER {kind} is followed by a number")
                    return self.expression(After(kind=kind, this=value))
        self._refuse("EMIT takes AFTER WATERMARK, AFTER DELAY, AFTER COUNT or AFTER PERCENTILE")


class ContinuousSql(Spark):
    """The dialect, for sqlglot."""

    class Tokenizer(Spark.Tokenizer):
        """Splits text into words; of no statement is the rest one word. A quote in text is written twice, or as \\'."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']  # as Spark 4 reads them; sqlglot's are of Spark 3

    Parser = ContinuousParser
