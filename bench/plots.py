"""Writes the figures of a benchmark into docs/performance.md and docs/images.

    python bench/plots.py bench/results.json

Only what stands between markers is replaced, so the words around it stay. The pictures are plain SVG, drawn by
`bench/svg.py`; what is written follows from the figures alone, so writing twice changes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from svg import Bar, Line, bars, lines
from table import HEAD, MANY, Results, arranged, conditions, markdown, middle, spread, summary

DOCS = Path(__file__).parent.parent / "docs"
PAGE = "performance.md"
KEEP, DBOS = "Keep", "DBOS"


def pictures(found: Results) -> Iterator[tuple[str, str]]:
    """Name → SVG."""
    yield "bench-runs.svg", bars("Runs per second (longer is better)", _bars(found))
    yield "bench-payload.svg", lines(
        "Runs per second by size of the payload, one at a time", "bytes of payload", "runs/s",
        [
            Line(f"{name}, {use}", _points(shapes.get("text", {}), side))
            for use, shapes in found.get("payload", {}).items() for name, side in ((KEEP, "keep"), (DBOS, "dbos"))
        ],
    )
    for part, words in (("events", "events already in the file"), ("workflows", "workflows, all but one idle")):
        title = f"Runs per second by number of {words.split(',')[0].replace(' already', '')}"
        yield f"bench-{part}.svg", lines(title, words, "runs/s", [Line(KEEP, _points(found.get(part, {})))])
    yield "bench-costs.svg", bars("CPU of one run, in µs", [Bar("", what, [us]) for what, us in parts(found)])


def _bars(found: Results) -> list[Bar]:
    words = {"one": "one at a time", "many": f"{MANY} at a time"}
    return [
        Bar(words[which], name, found["runs"][which][side]["runs_per_s"])
        for which in words for name, side in ((KEEP, "keep"), (DBOS, "dbos")) if side in found["runs"][which]
    ]


def _points(sizes: Results, side: str | None = None) -> list[tuple[float, list[float]]]:
    found = {int(size): figures.get(side, {}) if side else figures for size, figures in sizes.items()}
    return [(size, figures["runs_per_s"]) for size, figures in found.items() if "runs_per_s" in figures]


def parts(found: Results) -> list[tuple[str, float]]:
    """What of a run's CPU goes where, in µs."""
    costs = found["costs"]
    workers = [(f"sandbox worker, {kind}", costs["workers"][kind] * 1000) for kind in ("user", "system")]
    host = sorted(costs["parts"].items(), key=lambda each: -each[1])
    return [*workers, *((f"host: {part}", ms * 1000) for part, ms in host)]


# The pieces of the page


def pieces(found: Results) -> dict[str, str]:
    """Marker → what stands there."""
    return {
        "conditions": conditions(found),
        "table": markdown(HEAD.cells, [row.cells for row in summary(found)]),
        "trial": _trial(found),
        "costs": _costs(found),
    }


def _trial(found: Results) -> str:
    chosen = found.get("chosen", {})
    rows = [
        (f"{arranged(each['how'])}{' – **taken**' if each['how'] == chosen[which] else ''}",
         "one" if which == "one" else str(MANY), spread(each["runs_per_s"], "{:,.1f}"))
        for which, tried in found.get("trial", {}).items() for each in tried
    ]
    return markdown(("Arrangement of DBOS", "At a time", "runs/s"), rows)


def _costs(found: Results) -> str:
    costs, fsync = found["costs"], middle(found["disk"]["fsync_ms"])
    whole = sum(us for _, us in parts(found))
    syncs = found["runs"]["one"]["keep"].get("fsyncs_per_run")
    said = (f"A run took {costs['wall_ms']:.2f} ms of wall time and {whole / 1000:.2f} ms of CPU, measured over "
            f"{costs['runs']} runs, one at a time.")
    if syncs:
        said += f" Its {middle(syncs):.1f} fsyncs are {middle(syncs) * fsync:.2f} ms at this disk's own speed."
    said += f" Under cProfile the host used {costs['slower']:.1f} times its CPU; what it adds to a call is taken off."
    rows = [(what, f"{us:,.0f}", f"{us / whole:.0%}") for what, us in parts(found)]
    return said + "\n\n" + markdown(("Where", "µs of CPU per run", "Share"), rows)


def filled(page: str, found: Results) -> str:
    """The page with every piece between its markers; a marker without its piece is an error, and so is the reverse."""
    known = pieces(found)
    marked = re.findall(r"<!-- bench:(\w+) -->", page)
    if sorted(marked) != sorted(known):
        raise SystemExit(f"The page has markers for {sorted(marked)}; there are pieces for {sorted(known)}.")
    for name, text in known.items():
        between = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
        page, count = between.subn(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)
        if count != 1:
            raise SystemExit(f"The marker bench:{name} is not closed by /bench:{name}.")
    return page


def main() -> None:
    """Write everything."""
    [source] = sys.argv[1:]
    found = json.loads(Path(source).read_text("utf-8"))
    page = DOCS / PAGE
    page.write_text(filled(page.read_text("utf-8"), found), "utf-8")
    for name, drawn in pictures(found):
        (DOCS / "images" / name).write_text(drawn, "utf-8")


if __name__ == "__main__":
    main()
