"""The web page: the status and the answers that the API has, drawn. Each panel is a file; colours are in `theme.py` and
`style.css`.

It is NiceGUI, which serves its own scripts and fonts; nothing comes from elsewhere.
"""

from headrace.server.page.mounting import Page, mount_page
from headrace.server.page.nicegui_internals import SOCKET_PREFIX
from headrace.server.page.poller import Poller

__all__ = ["SOCKET_PREFIX", "Page", "Poller", "mount_page"]
