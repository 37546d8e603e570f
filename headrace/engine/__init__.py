"""The engine: how a pipeline runs on Spark. What it means is in headrace.model."""
