"""The part of a program that runs in Python workers: combining and exchanging pairs, and the state of keys, in files by version."""
