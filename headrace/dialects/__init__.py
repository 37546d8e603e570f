"""Dialects: the programming models of other systems, on the same engine."""
