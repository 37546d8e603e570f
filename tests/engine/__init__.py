"""Tests of headrace.engine, on the one Spark session of the suite."""
