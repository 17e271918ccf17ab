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


def chart(numbers: Sequence[int], label: str, failed: Sequence[int] = ()) -> str:
    """The same larger: with the highest number, an axis of hours, and the failed part of each bar marked."""
    pitch, most = WIDE_BAR + WIDE_GAP, max(numbers, default=0)
    wide, base = len(numbers) * pitch, HEAD + WIDE_TALL
    told = f"{label}: {sum(numbers):,} in the last {len(numbers)} hours, at most {most:,} in one"
    ticks = "".join(
        f'<text class="tick" x="{(place + 1) * pitch}" y="{base + FOOT - 4}" text-anchor="end">'
        f'{"now" if back == 0 else f"−{back} h"}</text>'
        for place in range(len(numbers)) if (back := len(numbers) - 1 - place) % 6 == 0)
    bad = _bars(failed, WIDE_BAR, pitch, base, WIDE_TALL, most) if any(failed) else ""
    return (f'<svg class="chart" role="img" viewBox="0 0 {wide} {base + FOOT}" aria-label="{escape(told)}">'
            f'<path class="ground" d="M0 {base}h{wide}v1h-{wide}z"/>'
            f'<path class="bar" d="{_bars(numbers, WIDE_BAR, pitch, base, WIDE_TALL)}"/>'
            f'{f"""<path class="bad" d="{bad}"/>""" if bad else ""}'
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
