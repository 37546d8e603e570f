"""The tests; they mirror headrace/."""
