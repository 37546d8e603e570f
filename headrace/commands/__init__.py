"""The command line: every `headrace` command. Imports all other packages; none imports it."""
