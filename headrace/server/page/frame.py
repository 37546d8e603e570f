"""The frame of the page: a header with the name, the state, tabs and the theme, and the panel of the open tab."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui
from starlette.requests import Request

from headrace.server.page.batchpanel import BatchPanel
from headrace.server.page.contentpolicy import allow_styles_of_scripts
from headrace.server.page.context import PageContext, Panel
from headrace.server.page.deadletterspanel import DeadLettersPanel
from headrace.server.page.explorer import ExplorerPanel
from headrace.server.page.listings import Chip, add_chip
from headrace.server.page.nicegui_internals import IS_DARK, SOCKET, THEME_SWITCH
from headrace.server.page.overview import OverviewPanel
from headrace.server.page.pagesockets import VISITOR
from headrace.server.page.pipelinespanel import PipelinesPanel
from headrace.server.page.poller import Snapshot
from headrace.server.page.sqlpanel import SqlPanel
from headrace.server.page.theme import FAVICON, STYLE
from headrace.server.page.topicspanel import TopicsPanel
from headrace.server.page.topologiespanel import TopologiesPanel
from headrace.server.security.visitors import Visitor
from headrace.server.service import Service
from headrace.views.systemstatus import PipelineStatus

if TYPE_CHECKING:
    from headrace.server.page.mounting import Page

_TABS: Final = {
    "sql": ("SQL", "terminal"),
    "pipelines": ("Pipelines", "account_tree"),
    "overview": ("Overview", "speed"),
    "views": ("Views", "stacked_bar_chart"),
    "topics": ("Topics", "view_stream"),
    "batch": ("Batch", "layers"),
    "letters": ("Dead letters", "report"),
    "topologies": ("Topologies", "hub"),
}
_THEME: Final = "headrace_theme"
# Who chooses the theme that the system has follows the system again.
_TOGGLE: Final = f"""() => {{
  const dark = !{IS_DARK};
  const maxAge = ({THEME_SWITCH})(dark) ? 0 : 31536000;
  document.cookie = `{_THEME}=${{dark ? "dark" : "light"}}; path=/; samesite=strict; max-age=${{maxAge}}`;
}}"""

# A connection that is refused does not say why. If it is for want of a session, the page goes to where one signs in.
_ASK_WHETHER_SIGNED_IN: Final = f"""{SOCKET}.io.on("reconnect_error", () =>
  fetch("/", {{method: "HEAD", redirect: "manual"}})
    .then((answer) => answer.type === "opaqueredirect" && window.location.assign("/login"))
    .catch(() => {{}})
)"""


class Frame:
    """One page in one browser."""

    def __init__(self, page: Page, request: Request) -> None:
        self.poller, self.sessions, self.request = page.poller, page.sessions, request
        self._visitor: Visitor = request.scope[VISITOR]
        self.context = PageContext(page.service, page.poller, page.pool, self._visitor.scopes, page.commands)
        self._names = tabs(page.service)
        self._shown_chip: Chip | None = None
        self._panels: dict[str, Panel] = {}

    def build(self) -> None:
        """Adds the elements of the page, which are updated once a second from then on."""
        ui.add_head_html(f"<style>{STYLE}</style>")
        if "sql" in self._names:
            ui.add_head_html(allow_styles_of_scripts())
        ui.colors(primary="#0b7285", positive="#2b8a3e", negative="#c92a2a", warning="#e67700", dark="#161c23")
        ui.dark_mode({"dark": True, "light": False}.get(self.request.cookies.get(_THEME, "")))
        with ui.header(elevated=False).classes("hr-header"):
            ui.image(FAVICON).classes("hr-logo").props("no-spinner no-transition alt=''")
            ui.label("Headrace").classes("hr-name")
            self._state = ui.element("div").classes("hr-state")
            with ui.tabs(on_change=self._open_tab).props("inline-label align=left").classes("hr-tabs") as self._tabs:
                for name in self._names:
                    label, icon = _TABS[name]
                    ui.tab(name, label=label, icon=icon).props("no-caps")
            with ui.element("div").classes("hr-tools"):
                theme = ui.button(icon="contrast", color=None).props('flat round dense aria-label="Dark or light"')
                theme.on("click", js_handler=_TOGGLE)
                if self.sessions.tokens:
                    with ui.element("form").props("method=post action=/logout"):
                        ui.button(icon="logout", color=None).props('flat round dense type=submit aria-label="Sign out"')
        tab = self.request.query_params.get("tab", "")
        opened = tab if tab in self._names else self._names[0]
        with ui.tab_panels(self._tabs, value=opened, animated=False).classes("hr-page"):
            for name in self._names:
                with ui.tab_panel(name).classes("hr-panel"):
                    self._panels[name] = self._panel(name)
        ui.timer(1.0, self._update)
        if self.sessions.tokens:
            ui.run_javascript(_ASK_WHETHER_SIGNED_IN)

    def _panel(self, name: str) -> Panel:
        if name == "views":
            return ExplorerPanel(self.context, self.request.query_params.get("view"))
        if name == "topologies":
            return TopologiesPanel(self.context, self.request.query_params.get("topology"))
        panels: dict[str, Callable[[PageContext], Panel]] = {
            "sql": SqlPanel,
            "pipelines": PipelinesPanel,
            "overview": OverviewPanel,
            "topics": TopicsPanel,
            "batch": BatchPanel,
            "letters": DeadLettersPanel,
        }
        return panels[name](self.context)

    async def _open_tab(self) -> None:
        if self._tabs.value in self._names:  # it is what the browser sent
            ui.run_javascript(f"history.replaceState(null, '', '/?tab={self._tabs.value}')")
            await self._update()

    async def _update(self) -> None:
        if "read" not in self._visitor.scopes():
            ui.navigate.to("/login")  # with which its connection ends
            return
        snapshot = self.poller.snapshot
        self._show_state(snapshot)
        await self._panels[self._tabs.value if self._tabs.value in self._names else self._names[0]].show(snapshot)

    def _show_state(self, snapshot: Snapshot) -> None:
        chip = state_chip(snapshot, topologies=self._names == ["topologies"])
        if chip != self._shown_chip:
            self._shown_chip = chip
            self._state.clear()
            with self._state:
                add_chip(chip)


def tabs(service: Service) -> list[str]:
    """Lists the tabs of a page: those of views if there can be any, and that of topologies if there can be any.

    >>> tabs(Service({}, {}))
    ['overview', 'views', 'topics', 'batch', 'letters']
    >>> tabs(Service({}, {}, pipelines=True))
    ['pipelines', 'letters']
    """
    if service.pipelines:
        more = [name for name, there in (("sql", service.statements), ("topologies", service.topologies)) if there]
        return [name for name in _TABS if name in ("pipelines", "letters", *more)]
    only_topologies = service.topologies is not None and not service.views and service.operations is None
    return [
        name
        for name in _TABS
        if name not in ("sql", "pipelines")
        if (name == "topologies" and service.topologies is not None) or (name != "topologies" and not only_topologies)
    ]


def state_chip(snapshot: Snapshot, topologies: bool = False) -> Chip:
    """Describes the state of the system; that of `topologies` if there is nothing else.

    >>> state_chip(Snapshot({"views": {"a": {"state": "running"}, "b": {"state": "failed"}}}, runs=True))
    Chip(text='1 of 2 views failed', kind='bad')
    >>> state_chip(Snapshot({"views": {}}, runs=False)).text
    'store only'
    >>> state_chip(Snapshot({"views": {}}, runs=False), topologies=True).text
    'no cluster'
    """
    if not snapshot.answers:
        return Chip("no answer", "bad")
    if topologies:
        return _topologies_chip(snapshot.topologies)
    if not snapshot.runs:
        return Chip("store only", "plain")
    if "pipelines" in snapshot.status:
        return _pipelines_chip(snapshot.status["pipelines"], over=snapshot.status.get("over", False))
    states = [view["state"] for view in snapshot.status["views"].values()]
    for state in ("failed", "stopped"):
        if state in states:
            return Chip(
                f"{states.count(state)} of {len(states)} views {state}", "bad" if state == "failed" else "plain"
            )
    return Chip("running", "good")


def _pipelines_chip(pipelines: dict[str, PipelineStatus], *, over: bool) -> Chip:
    states = [pipeline["state"] for pipeline in pipelines.values()]
    if "failed" in states:
        return Chip(f"{states.count('failed')} of {len(states)} pipelines failed", "bad")
    if over:
        return Chip("over", "plain")
    return Chip("running", "good") if "running" in states else Chip("no pipeline runs", "plain")


def _topologies_chip(published: dict[str, Any]) -> Chip:
    if not published["runs"]:
        return Chip("no cluster", "plain")
    states = [topology["state"] for topology in published["topologies"]]
    if "failed" in states:
        return Chip(f"{states.count('failed')} of {len(states)} topologies failed", "bad")
    return Chip("running", "good")
