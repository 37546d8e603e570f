"""Runs in Python workers: combines and exchanges pairs, and has the state of keys, in files by version."""
