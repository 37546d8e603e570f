"""Tasks of components: pure functions of Arrow batches and state. No Spark, no files, no threads."""
