"""Continuous SQL: queries that wait for data, as pipelines of columns."""
