"""The process that runs ad-hoc SQL on Spark, and the rules that it holds statements to."""
