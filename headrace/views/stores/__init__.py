"""Stores: where the rows of views are kept and found. SQLite needs nothing but a disk; PostgreSQL is for the rest."""

from headrace.views.stores.store import Store

__all__ = ["Store"]
