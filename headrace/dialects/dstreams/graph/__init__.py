"""What a program means: nodes that make an RDD for each batch, and their inputs."""
