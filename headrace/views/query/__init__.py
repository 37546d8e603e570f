"""Queries of views and the rows that answer them."""
