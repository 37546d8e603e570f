"""Dialects: other systems' ways of writing a computation. A dialect declares; the engine runs."""
