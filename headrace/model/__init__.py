"""The model: what a pipeline means, in pure Python and arrays. Nothing here imports Spark, reads or writes."""
