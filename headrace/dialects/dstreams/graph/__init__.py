"""The meaning of a program: nodes that make an RDD for each batch, and their inputs."""
