"""`python -m headrace` is `headrace`."""

from headrace.commands.main import main

main()
