"""The web page: what the API tells, drawn. Each panel is a file; what they look like is in `theme.py` and `style.css`.

It is NiceGUI, which serves its own scripts and fonts; nothing comes from elsewhere.
"""

from headrace.server.page.mounting import Page, add_page
from headrace.server.page.poller import Watch

__all__ = ["Page", "Watch", "add_page"]
