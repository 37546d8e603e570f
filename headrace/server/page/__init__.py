"""The web page, which draws the status and the answers of the API.

Each panel is a file; colours are in `theme.py` and `style.css`. NiceGUI serves its own scripts and fonts; nothing is
loaded from other servers.
"""

from headrace.server.page.mounting import Page, mount_page
from headrace.server.page.nicegui_internals import SOCKET_PREFIX
from headrace.server.page.poller import Poller

__all__ = ["SOCKET_PREFIX", "Page", "Poller", "mount_page"]
