"""The theme of charts: colours for dark and light pages, and options that all charts share.

Charts are drawn as SVG, so `style.css` has the colours of their texts. Names from data are values in options, never
keys: NiceGUI takes keys that begin with a colon for code.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from headrace.server.page.nicegui_internals import JS_OPTION

BATCH: Final = "#4c7df0"
SPEED: Final = "#f59f0b"
MERGED: Final = "#12a594"
SERIES: Final = ("#12a594", "#4c7df0", "#f59f0b", "#d6409f", "#8e4ec6", "#e5484d", "#30a46c", "#0091ff")

STYLE: Final = Path(__file__).with_name("style.css").read_text("utf-8")

# A mill wheel in running water.
_WHEEL: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><g fill="none" stroke="#12a594" stroke-width="2.4" '
    'stroke-linecap="round"><circle cx="16" cy="14" r="9"/><path d="M16 5v18M7 14h18M9.6 7.6l12.8 12.8M22.4 7.6 9.6 '
    '20.4"/><path stroke="#4c7df0" d="M3 28c3-2.5 6-2.5 9 0s6 2.5 9 0 5-2.5 8 0"/></g></svg>'
)
FAVICON: Final = f"data:image/svg+xml;base64,{base64.b64encode(_WHEEL.encode()).decode()}"

# Code of ours, which runs in the browser; no name from data may be part of it.
COMPACT: Final = "value => new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1}).format(value)"
EXACT: Final = (
    "value => value == null ? '–' : typeof value == 'number' ? "
    "new Intl.NumberFormat('en', {maximumFractionDigits: 3}).format(value) : String(value)"
)

_SHORT: Final = "name => name.length > 32 ? name.slice(0, 31) + '…' : name"

_GREY: Final = "#8a94a3"
_FAINT: Final = "rgba(138, 148, 163, 0.18)"


def chart(series: list[dict[str, Any]], *, axis: dict[str, Any] | None = None, unit: str = "") -> dict[str, Any]:
    """Returns the options of a chart over time.

    >>> sorted(chart([{"type": "line", "name": "rate", "data": []}]))[:4]
    ['animation', 'color', 'grid', 'legend']
    """
    return {
        "animation": False,
        "useUTC": True,
        "color": list(SERIES),
        "textStyle": {"fontFamily": "Roboto, sans-serif"},
        "grid": {"left": 8, "right": 20, "top": 40, "bottom": 8, "containLabel": True},
        "legend": {
            "type": "scroll",
            "top": 4,
            "left": 4,
            "right": 4,
            "itemWidth": 12,
            "itemHeight": 8,
            "itemGap": 14,
            "icon": "roundRect",
            f"{JS_OPTION}formatter": _SHORT,
            "textStyle": {"color": _GREY, "fontSize": 12},
        },
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "className": "hr-tooltip",
            "backgroundColor": "var(--hr-card)",
            "borderColor": "var(--hr-line)",
            "borderWidth": 1,
            "textStyle": {"color": "var(--hr-text)", "fontSize": 13},
            "axisPointer": {"type": "line", "lineStyle": {"color": _GREY, "type": "dashed"}},
            f"{JS_OPTION}valueFormatter": EXACT,
        },
        "xAxis": {
            "type": "time",
            "axisLine": {"lineStyle": {"color": _FAINT}},
            "axisTick": {"show": False},
            "axisLabel": {"color": _GREY, "fontSize": 11, "hideOverlap": True},
            "splitLine": {"show": False},
            **(axis or {}),
        },
        "yAxis": {
            "type": "value",
            f"{JS_OPTION}min": "range => Math.min(0, range.min)",
            "axisLabel": {
                "color": _GREY,
                "fontSize": 11,
                f"{JS_OPTION}formatter": f"value => ({COMPACT})(value) + '{unit}'",
            },
            "splitLine": {"lineStyle": {"color": _FAINT}},
            "splitNumber": 4,
        },
        "series": series,
    }


def line(name: str, points: list[list[float | None]], *, dashed: bool = False) -> dict[str, Any]:
    """Returns a line of a chart: points of milliseconds and values.

    >>> line("lag", [[0, 3]])["data"]
    [[0, 3]]
    """
    drawn = {"width": 2, "type": "dashed" if dashed else "solid"}
    return {"type": "line", "name": name, "data": points, "showSymbol": False, "lineStyle": drawn}
