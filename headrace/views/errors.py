"""The error of views."""

from headrace.model.errors import HeadraceError


class ViewError(HeadraceError, ValueError):
    """A declaration, the data or a query of a view is refused: the message names the rule, the value and the remedy."""
