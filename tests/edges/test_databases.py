from __future__ import annotations

import sqlalchemy as sa

from headrace.edges import databases


def test_reasons_have_one_line() -> None:
    url = sa.make_url("postgresql://amy:s3cret@host/db")
    assert databases.error_text(ValueError("a\n  b s3cret"), url) == "a b ***"
