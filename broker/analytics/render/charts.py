"""Charts as SVG inside an HTML page, in the page's colours. Knows matplotlib; must not know the page.

matplotlib writes fixed colours. So each chart uses placeholder colours, which are replaced by CSS variables of the
page: the same chart is right on a light screen, a dark screen and paper.
"""

import io
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import matplotlib as mpl
from matplotlib import dates, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from broker.analytics.figures import Node
from broker.analytics.quantities import duration, milliseconds

INK: Final = "#010203"
FAINT: Final = "#010204"
FIRST: Final = "#010205"
SECOND: Final = "#010206"
ALARM: Final = "#010207"
_COLOURS: Final = {INK: "--ink", FAINT: "--faint", FIRST: "--first", SECOND: "--second", ALARM: "--alarm"}

# matplotlib has no types for these.
_day: Callable[[datetime], float] = dates.date2num
_Ticks: Any = dates.AutoDateLocator
_date: Callable[[float], datetime] = dates.num2date

_SECOND: Final = 1 / 86_400
_CLOCKS: Final = ((6 * _SECOND, "%S.%f"), (600 * _SECOND, "%H:%M:%S"), (2, "%H:%M"))
"""The time format on an axis, by its length in days."""

# As wide as on a phone, so that the text in the chart is as large as the page's.
_INCHES: Final = (4.8, 2.7)
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stanzaq",
    "font.size": 10.5,
    "font.family": "sans-serif",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
}
"""Every setting that matters here and that matplotlib would otherwise take from the user's own file."""


def charts(node: Node, target_s: float) -> list[tuple[str, str]]:
    """Draw the charts of a node; returns captions and SVG."""
    drawn = (
        [("p95 wait of the busiest hour with so many workers", _draw_what_if(node, target_s))] if node.what_if else []
    )
    drawn += [("Arrivals and acknowledgements a second", _rates(node)), ("Waiting and in flight", _levels(node))]
    if node.waits:
        drawn.append(("Share of items that waited at most so long", _waits(node, target_s)))
    return drawn


def _rates(node: Node) -> str:
    def draw(axes: Axes) -> None:
        # In a step that was cut short, a single event would look like a peak.
        whole = [row for row in node.moments if row.length_s == node.moments[0].length_s]
        times = [_day(row.begin) for row in whole]
        arrived, done = ([getattr(row, what) / row.length_s for row in whole] for what in ("arrived", "acknowledged"))
        axes.step(times, arrived, where="post", color=FIRST, label="arrivals")
        axes.step(times, done, where="post", color=SECOND, linewidth=1.0, label="acknowledged")
        _time_axis(axes)

    return _svg(draw, f"{node.node}-rates")


def _levels(node: Node) -> str:
    def draw(axes: Axes) -> None:
        times = [_day(row.begin) for row in node.moments]
        axes.fill_between(times, [row.waiting for row in node.moments], color=FIRST, alpha=0.35, linewidth=0)
        axes.plot(times, [row.waiting for row in node.moments], color=FIRST, label="waiting")
        axes.plot(times, [row.in_flight for row in node.moments], color=SECOND, label="in flight")
        if node.capacity.credit:
            _target(axes.axhline, node.capacity.credit, label="credit")
        _time_axis(axes)

    return _svg(draw, f"{node.node}-levels")


def _waits(node: Node, target_s: float) -> str:
    def draw(axes: Axes) -> None:
        shares, waits = zip(*node.waits, strict=True)
        most = max(waits[-1], 1)
        axes.plot(waits, shares, color=FIRST)
        axes.axhline(0.95, color=FAINT, linewidth=1.0)
        # A target far off would squeeze the curve to the side.
        if target_s * 1000 <= 2 * most:
            most = max(most, target_s * 1000 * 1.1)
            _target(axes.axvline, target_s * 1000)
            axes.annotate("target", (target_s * 1000, 0.02), textcoords="offset points", xytext=(4, 0), color=ALARM)
        axes.set_xlim(0, most)
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda value, _: milliseconds(value))
        axes.set_yticks([0.25, 0.5, 0.75, 0.95], ["25 %", "50 %", "75 %", "95 %"])

    return _svg(draw, f"{node.node}-waits")


def _draw_what_if(node: Node, target_s: float) -> str:
    def draw(axes: Axes) -> None:
        workers = [row.workers for row in node.what_if]
        waits = [row.wait_p95_s for row in node.what_if]
        colours = [FIRST if wait <= target_s else SECOND for wait in waits]
        axes.bar([f"{number:,}" for number in workers], waits, color=colours, width=0.6)
        _target(axes.axhline, target_s)
        # A bar for far too few workers would flatten the others.
        axes.set_ylim(0, min(max(waits), 3 * target_s) * 1.1 or target_s)
        axes.yaxis.set_major_formatter(lambda value, _: duration(value))
        axes.set_xlabel("workers")

    return _svg(draw, f"{node.node}-what-if")


def _target(line: Callable[..., object], value: float, **words: str) -> None:
    """Draw a line for the target or the credit, which are not measured."""
    line(value, color=ALARM, linewidth=1.0, linestyle=(0, (4, 3)), **words)


def _time_axis(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.tick_params(axis="x", pad=6)
    # With a narrower range some lengths fit no unit, such as 151 s.
    axes.xaxis.set_major_locator(_Ticks(minticks=2, maxticks=7))
    first, last = axes.get_xlim()
    form = next((form for days, form in _CLOCKS if last - first < days), "%d %b")
    axes.xaxis.set_major_formatter(lambda value, _: _date(value).strftime(form).removesuffix("00000"))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0, handlelength=1.4)


def _svg(draw: Callable[[Axes], None], name: str) -> str:
    """Draw and return the SVG, with ids that are unique in a page of many."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        draw(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    return _rename_ids(svg[svg.index("<svg") :], name)


def _rename_ids(svg: str, name: str) -> str:
    prefix = re.sub(r"[^a-zA-Z0-9]", "-", name)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    # Fonts are the page's. A style inside an SVG would apply to the whole page.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|font-family: [^;\"]*;?", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", svg)
