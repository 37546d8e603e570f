"""Tests of headrace.model: none of them starts Spark."""
