"""Declarations of topics and views, and the layout of their rows. Nothing here runs."""
