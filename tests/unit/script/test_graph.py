from __future__ import annotations

from keepai.script.check import check
from keepai.script.manifest import Handler, HandlerKind, Manifest
from keepai.script.topic_graph import Edge, Vertex, as_mermaid, find_cycles, graph
from tests.unit.script.samples import SURFACE, example


def consumer(name: str, subscribe: str, publishes: str) -> Handler:
    return Handler(name, HandlerKind.CONSUMER, tuple(publishes), tuple(subscribe))


def test_the_graph_shows_who_publishes_what_to_whom() -> None:
    manifest = check(example("email-to-sheets.js"), SURFACE).manifest
    assert manifest is not None
    received, created = Vertex("email.received", "topic"), Vertex("row.created", "topic")
    poll, process = Vertex("pollEmail", "producer"), Vertex("processEmail", "consumer")
    drawn = graph(manifest)
    assert drawn.vertices == (received, created, poll, process)
    assert drawn.edges == (Edge(poll, received), Edge(received, process), Edge(process, created))
    assert drawn.cycles == ()


def test_mermaid_draws_every_vertex_and_edge_and_escapes_names() -> None:
    manifest = Manifest("w", ('a"b',), (Handler("p", HandlerKind.PRODUCER, ('a"b',)),), ())
    assert as_mermaid(graph(manifest)) == 'flowchart LR\n  n0(["a#34;b"])\n  n1[/"p"/]\n  n1 --> n0\n'


def test_a_handler_and_a_topic_of_one_name_are_two_vertices() -> None:
    manifest = Manifest("w", ("x",), (Handler("x", HandlerKind.PRODUCER, ("x",)),), ())
    assert "n1 --> n0" in as_mermaid(graph(manifest))


def test_circles_are_found_shortest_first_and_once() -> None:
    assert find_cycles([consumer("a", "1", "2"), consumer("b", "2", "3")]) == ()
    assert find_cycles([consumer("a", "1", "1")]) == (("a", "1"),)
    assert find_cycles([consumer("a", "1", "2"), consumer("b", "2", "1")]) == (("a", "2", "b", "1"),)
    assert find_cycles([consumer("x", "9", "1"), consumer("a", "1", "2"), consumer("b", "2", "1")]) == (
        ("a", "2", "b", "1"),
    )
    two = [consumer("a", "1", "1"), consumer("b", "2", "3"), consumer("c", "3", "2")]
    assert find_cycles(two) == (("a", "1"), ("b", "3", "c", "2"))


def test_a_handler_that_does_not_say_what_it_publishes_closes_no_circle() -> None:
    assert find_cycles([Handler("a", HandlerKind.CONSUMER, None, ("1",))]) == ()
