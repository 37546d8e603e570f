"""The one way a view can be wrong: as it was declared, in what it was given, or in what it is asked."""


class ViewError(ValueError):
    """The message names the rule, the value that breaks it, and what to do."""
