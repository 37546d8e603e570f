"""The edges on Spark: how pipelines read topics and write to topics and tables. The engine calls what is here."""
