"""Numbers by the hour as small pictures: SVG that needs nothing else. Colours come from classes of the page's sheet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

BAR, GAP, TALL = 3, 1, 20  #: of a sparkline
WIDE_BAR, WIDE_GAP, WIDE_TALL, FOOT, HEAD = 12, 3, 64, 16, 14  #: of a chart


def sparkline(numbers: Sequence[int], label: str) -> str:
    """Bars in a row, as high as their numbers are to the highest."""
    wide = len(numbers) * (BAR + GAP)
    way = _bars(numbers, BAR, BAR + GAP, TALL, TALL - 1)
    told = f"{label}: {sum(numbers):,} in {len(numbers)} hours, at most {max(numbers, default=0):,} in one"
    return (f'<svg class="spark" viewBox="0 0 {wide} {TALL}" width="{wide}" height="{TALL}" aria-hidden="true">'
            f'<title>{escape(told)}</title><path class="ground" d="M0 {TALL - 1}h{wide}v1h-{wide}z"/>'
            f'<path class="bar" d="{way}"/></svg>')


def chart(numbers: Sequence[int], label: str, marked: Sequence[int] = (), tone: str = "bad") -> str:
    """The same larger: with the highest number and an axis of hours; a part of each bar may be marked in a tone."""
    return layers([("bar", numbers), *([(tone, marked)] if any(marked) else [])], label)


def shares(parts: Sequence[Sequence[int]], label: str) -> str:
    """A larger chart whose bars are made of parts, the first at the bottom, in the tones part0, part1, …."""
    sums = [[sum(each) for each in zip(*parts[:end], strict=True)] for end in range(1, len(parts) + 1)]
    return layers([(f"part{place}", sums[place]) for place in reversed(range(len(parts)))], label)


def layers(drawn: Sequence[tuple[str, Sequence[int]]], label: str) -> str:
    """Bars over bars, each with its class; the first are the highest, and the others lie before them."""
    numbers, pitch = drawn[0][1], WIDE_BAR + WIDE_GAP
    most, wide, base = max(numbers, default=0), len(numbers) * pitch, HEAD + WIDE_TALL
    told = f"{label}: {sum(numbers):,} in the last {len(numbers)} hours, at most {most:,} in one"
    ticks = "".join(
        f'<text class="tick" x="{(place + 1) * pitch}" y="{base + FOOT - 4}" text-anchor="end">'
        f'{"now" if back == 0 else f"−{back} h"}</text>'
        for place in range(len(numbers)) if (back := len(numbers) - 1 - place) % 6 == 0)
    bars = "".join(
        f'<path class="{kind}" d="{_bars(each, WIDE_BAR, pitch, base, WIDE_TALL, most)}"/>' for kind, each in drawn)
    return (f'<svg class="chart" role="img" viewBox="0 0 {wide} {base + FOOT}" aria-label="{escape(told)}">'
            f'<path class="ground" d="M0 {base}h{wide}v1h-{wide}z"/>{bars}'
            f'<text class="tick" x="0" y="10">{f"at most {most:,} an hour" if most else "none"}</text>{ticks}</svg>')


def _bars(
    numbers: Sequence[int], wide: int, pitch: int, base: int, tall: int, most: int | None = None,
) -> str:
    """One path for all bars: what is not zero can always be seen."""
    highest = max(numbers, default=0) if most is None else most
    way = ""
    for place, number in enumerate(numbers):
        if number:
            high = max(2, round(tall * number / highest))
            way += f"M{place * pitch} {base}v-{high}h{wide}v{high}z"
    return way
