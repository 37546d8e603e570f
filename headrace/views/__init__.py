"""Views: aggregations of a topic that batch and speed layers compute, stores keep, and a server answers from.

The rooms, in the order in which they may import:

- `declare`: topics and views as a user declares them, and the layout of their rows
- `query`: what one asks of a view, and how partial rows become answers
- `stores`: rows of views in SQLite or PostgreSQL, in versions and generations
- `feeds`: the records of topics, for all who read and append them
- `adhoc`: ad-hoc SQL, in processes of their own
- `archive`: the files of master data: manifests, the writer's lock, tables for ad-hoc SQL
- `master`, `layers`, `sparksql`: master data, the batch and speed layers, and Spark's sandbox. These three know Spark,
  the others do not.
"""
