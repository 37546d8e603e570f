"""Naiad's vocabulary: collections that change, and loops over them that are kept up to date."""
