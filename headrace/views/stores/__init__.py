"""Stores: the rows of views in a database, SQLite in a file or PostgreSQL."""

from headrace.views.stores.store import Store

__all__ = ["Store"]
