"""`keep graph`, and the picture that the page shows too."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from keepai.reading.graph_svg import svg
from keepai.script.check import check
from keepai.script.topic_graph import Graph, Vertex, graph
from tests.harness import consumer, producer, workflow

from .conftest import Place

NAME = "{http://www.w3.org/2000/svg}"


def drawn(**parts: object) -> Graph:
    manifest = check(workflow(**parts)).manifest  # type: ignore[arg-type]
    assert manifest
    return graph(manifest)


def boxes(text: str) -> dict[str, tuple[int, int]]:
    """The title of each vertex and where it stands."""
    root = ElementTree.fromstring(text)
    found = {}
    for group in root.iter(f"{NAME}g"):
        title, box = group.find(f"{NAME}title"), group.find(f"{NAME}rect")
        assert title is not None
        assert box is not None
        found[str(title.text)] = int(box.attrib["x"]), int(box.attrib["y"])
    return found


def test_a_graph_is_told_as_text(place: Place) -> None:
    told = place.type("graph", "flow.js").stdout
    assert "pollEmail     producer  every 5m" in told
    assert "Nobody takes events of row.created: they are results." in told
    assert place.json("graph", "flow.js")["topics"] == [
        {"name": "email.received", "subscriber": "processEmail", "waiting": 0},
        {"name": "row.created", "subscriber": None, "waiting": 0},
    ]


def test_a_deployed_workflow_tells_how_many_events_wait(blocked: Place) -> None:
    assert "1 event waits in email.received." in blocked.type("graph", "email-to-sheets").stdout
    assert "1 waiting" in blocked.type("graph", "email-to-sheets", "--svg").stdout
    assert blocked.type("graph", "flow.js", "--mermaid").stdout.startswith("flowchart LR")


def test_what_is_no_workflow_and_no_file_is_told(place: Place) -> None:
    (place.folder / "bad.js").write_text("nonsense(")
    assert "error" in place.type("graph", "bad.js", code=3).stderr
    assert "no ledger" in place.type("graph", "nothing", code=1).stderr
    assert "there is no file none.js" in place.type("graph", "none.js", code=2).stderr


def test_events_flow_from_left_to_right() -> None:
    found = boxes(svg(drawn(
        producers={"poll": producer(publishes=["in"])},
        consumers={"take": consumer(subscribe=["in"], publishes=["out"])},
    )))
    order = sorted(found, key=lambda name: found[name][0])
    assert order == ["producer poll", "topic in", "consumer take", "topic out"]
    assert len(set(found.values())) == 4


def test_a_circle_is_drawn_too() -> None:
    found = boxes(svg(drawn(
        consumers={"a": consumer(subscribe=["in"], publishes=["out"]),
                   "b": consumer(subscribe=["out"], publishes=["in"])},
    )))
    assert len(set(found.values())) == 4


@pytest.mark.parametrize("hostile", ['<script>alert(1)</script>', '"><g onload="x', "a&b", "\u202egnp.exe"])
def test_every_text_is_escaped(hostile: str) -> None:
    vertex = Vertex(hostile, "topic")
    text = svg(Graph((vertex,), (), ()), {vertex: hostile})
    root = ElementTree.fromstring(text)
    assert [each.tag.removeprefix(NAME) for each in root.iter() if "script" in each.tag] == []
    assert all("onload" not in each.attrib for each in root.iter())
    assert "\u202e" not in text


def test_a_picture_tells_who_cannot_see_it_and_needs_nothing_else() -> None:
    made = drawn(producers={"poll": producer(publishes=["in"])}, consumers={"take": consumer(subscribe=["in"])})
    text = svg(made, {Vertex("in", "topic"): "3 waiting"})
    desc = ElementTree.fromstring(text).find(f"{NAME}desc")
    assert desc is not None
    assert "Producer poll publishes to in." in str(desc.text)
    assert "Topic in (3 waiting) is taken by take." in str(desc.text)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<style>" not in svg(made, styled=False)


def test_a_graph_of_nothing_is_a_picture() -> None:
    assert ElementTree.fromstring(svg(Graph((), (), ()))).tag == f"{NAME}svg"
