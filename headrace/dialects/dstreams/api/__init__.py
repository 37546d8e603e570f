"""The classes that programs use."""
