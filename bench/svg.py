"""Two kinds of plot as SVG: bars with their spread, and lines over a logarithmic axis. Plain text, no library.

A plot brings its own background and has colours for light and dark, because nobody knows on what it will be shown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 720, 220, 90, 52
BAR, GAP = 20, 8
PLOT_LEFT, PLOT_HEIGHT, BOTTOM = 70, 240, 64
COLOURS = ("a", "b")

_STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 12px; fill: #57606a } .back { fill: #ffffff } .grid { stroke: #d0d7de }
  .a { fill: #0969da; stroke: #0969da } .b { fill: #bc4c00; stroke: #bc4c00 } .line { fill: none; stroke-width: 2 }
  .ends { stroke: #1f2328; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .back { fill: #0d1117 } .grid { stroke: #3d444d }
    .a { fill: #4493f8; stroke: #4493f8 } .b { fill: #f0883e; stroke: #f0883e } .ends { stroke: #e6edf3 }
    .line { fill: none }
  }
</style>"""


@dataclass(frozen=True)
class Bar:
    """One bar: the group it stands in, its name, and the figures of its rounds."""

    group: str
    name: str
    figures: list[float]


@dataclass(frozen=True)
class Line:
    """One line: its name, and for each place on the axis the figures of the rounds."""

    name: str
    points: list[tuple[float, list[float]]]


def bars(title: str, given: list[Bar]) -> str:
    """Bars from the left, each with its figure and its spread."""
    most = max((max(bar.figures) for bar in given), default=1) or 1
    names = list(dict.fromkeys(bar.name for bar in given)) if any(bar.group for bar in given) else []
    drawn, y, group = [], float(TOP), ""
    for bar in given:
        y += GAP * 2 if bar.group != group and drawn else 0
        group = bar.group
        colour = COLOURS[names.index(bar.name) % len(COLOURS)] if names else "a"
        drawn.append(_bar(bar, y, most, colour))
        y += BAR + GAP
    return _picture(title, y + GAP, drawn)


def _bar(bar: Bar, y: float, most: float, colour: str) -> str:
    def at(figure: float) -> float:
        return LEFT + figure / most * (WIDTH - LEFT - RIGHT)

    middle, low, high = statistics.median(bar.figures), min(bar.figures), max(bar.figures)
    label = f"{bar.name}, {bar.group}" if bar.group else bar.name
    ends = f'<path class="ends" d="M{at(low):.1f} {y + BAR / 2}H{at(high):.1f}"/>' if high > low else ""
    return (
        f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="{colour}" x="{LEFT}" y="{y}" width="{at(middle) - LEFT:.1f}" height="{BAR}"/>{ends}'
        f'<text x="{at(high) + 8:.1f}" y="{y + 15}">{_short(middle)}</text>'
    )


def lines(title: str, x_words: str, y_words: str, given: list[Line]) -> str:
    """Lines over a logarithmic axis, from zero upwards, with the spread of each point."""
    shown = [line for line in given if line.points]
    places = sorted({x for line in shown for x, _ in line.points}) or [1.0]
    most = _round_up(max((max(figures) for line in shown for _, figures in line.points), default=1))
    low, high = math.log10(places[0]), math.log10(places[-1])

    def at_x(x: float) -> float:
        share = (math.log10(x) - low) / (high - low) if high > low else 0.5
        return PLOT_LEFT + 20 + share * (WIDTH - PLOT_LEFT - 130)

    def at_y(y: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - y / most)

    drawn = [*_levels(most, at_y), *_ticks(places, at_x), *_names(x_words, y_words)]
    for line, colour in zip(shown, COLOURS, strict=False):
        spots = [(at_x(x), at_y(statistics.median(f)), at_y(min(f)), at_y(max(f))) for x, f in line.points]
        drawn += _line(line.name, colour, spots)
    return _picture(title, TOP + PLOT_HEIGHT + BOTTOM, drawn)


def _levels(most: float, at_y: Callable[[float], float]) -> Iterator[str]:
    for level in (most * n / 4 for n in range(5)):
        yield f'<path class="grid" d="M{PLOT_LEFT} {at_y(level):.1f}H{WIDTH - 90}"/>'
        where = f'x="{PLOT_LEFT - 8}" y="{at_y(level) + 4:.1f}"'
        yield f'<text class="small" {where} text-anchor="end">{_short(level)}</text>'


def _ticks(places: list[float], at_x: Callable[[float], float]) -> Iterator[str]:
    for x in places:
        where = f'x="{at_x(x):.1f}" y="{TOP + PLOT_HEIGHT + 20}"'
        yield f'<text class="small" {where} text-anchor="middle">{x:,.0f}</text>'


def _names(x_words: str, y_words: str) -> Iterator[str]:
    middle = TOP + PLOT_HEIGHT / 2
    yield f'<text x="{WIDTH / 2}" y="{TOP + PLOT_HEIGHT + 44}" text-anchor="middle">{escape(x_words)}</text>'
    turned = f'transform="rotate(-90 16 {middle})"'
    yield f'<text x="16" y="{middle}" text-anchor="middle" {turned}>{escape(y_words)}</text>'


def _line(name: str, colour: str, spots: list[tuple[float, float, float, float]]) -> Iterator[str]:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in spots)
    yield f'<polyline class="{colour} line" points="{points}"/>'
    for x, y, bottom, top in spots:
        yield f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        yield f'<path class="{colour}" d="M{x:.1f} {bottom:.1f}V{top:.1f}"/>'
    yield f'<text x="{spots[-1][0] + 12:.1f}" y="{spots[-1][1] + 4:.1f}">{escape(name)}</text>'


def _picture(title: str, height: float, drawn: list[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
            f'height="{height:.0f}" role="img" aria-label="{escape(title)}">')
    back = f'<rect class="back" width="{WIDTH}" height="{height:.0f}" rx="6"/>'
    named = f'<text class="title" x="20" y="30">{escape(title)}</text>'
    return "\n".join([head, _STYLE, back, named, *drawn, "</svg>", ""])


def _round_up(figure: float) -> float:
    """The next number whose quarters are short."""
    power = 10 ** math.floor(math.log10(figure)) if figure > 0 else 1
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= figure)


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 20 or figure == int(figure) else f"{figure:,.1f}"
