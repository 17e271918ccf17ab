"""The short form of the cluster, the proof that it finds the unsafe rule, and its judge on logs that are wrong."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from keepai.model.records import Escalation, Mutation
from keepai.model.states import MutationStatus
from tests.limits import budget_s
from tests.postgres import Proxy, binaries
from tests.prove import cluster
from tests.prove.cluster_judge import judge

needs_server = pytest.mark.skipif(
    sys.platform != "linux" or binaries() is None, reason="needs pidfds and a PostgreSQL server")


@needs_server
def test_hosts_that_are_killed_frozen_and_cut_off_lose_nothing_and_do_nothing_twice() -> None:
    result = cluster.run(6, 1, None)
    assert result.violations == []
    assert result.tried, result.note  # how many depends on the machine


@needs_server
@pytest.mark.skipif(not budget_s(), reason="real hosts meet it by luck, in minutes: KEEP_BUDGET=3m looks")
def test_the_rule_that_a_lease_which_is_over_closes_a_call_is_found() -> None:
    # "the lease is over, and the settle time too": docs/internals/ownership.md says how it leads to a second effect
    result = cluster.run(budget_s(), 1, None, enough=1, plant="no_closure", kinds=[cluster.LATE])
    assert any(" times" in violation.what for violation in result.violations), result


# -- the judge -------------------------------------------------------------------------------------------


def effect(flow: str, key: str, run: str, kind: str = "rows", order: str = "o0") -> dict[str, Any]:
    return {"kind": kind, "key": key, "run": run, "body": {"flow": flow, "order": order},
            "result": {"id": f"{kind}-{key}"}}


def mutation(key: str, run: str, status: MutationStatus = MutationStatus.APPLIED, kind: str = "rows") -> Mutation:
    there = status is MutationStatus.APPLIED
    return Mutation(
        id=f"mut_{key}", workflow_id="wf_1", run_id=run, ordinal=1, lineage=run, mutation_key=key, idempotency_key=key,
        connector=kind, operation="add", account="", target="", params={}, title=None, preview="", status=status,
        result={"id": f"{kind}-{key}"} if there else None, attempts=1, sender="", epoch=1, first_sent_at=0,
        closed_at=0, doubted_at=None, reconcile_attempts=0, evidence=None, resolution=None, contradicted_at=None,
        error=None, item_id=None, created_at=0, updated_at=0)


WANTED = [("rows-0", "o0", "rows"), ("mails-0", "o0", "mails")]
EFFECTS = [effect("rows-0", "k1", "run_1"), effect("mails-0", "k2", "run_2", "mails")]
MUTATIONS = [mutation("k1", "run_1"), mutation("k2", "run_2", kind="mails")]
FAILED = mutation("k1", "run_0", MutationStatus.FAILED)
QUESTION = Escalation("esc_1", "unknown_outcome", "wf_1", "run_1", "mut_k1", "Did it happen?", {}, ())


def test_the_judge_finds_nothing_where_all_is_well() -> None:
    assert judge(EFFECTS, MUTATIONS, [], WANTED) == []
    assert judge(EFFECTS, [FAILED, *MUTATIONS], [], WANTED) == [], "a first try that did not happen is no fault"


WRONG: dict[str, tuple[list[dict[str, Any]], list[Mutation], str]] = {
    "twice, by one attempt": ([*EFFECTS, EFFECTS[0]], MUTATIONS, "rows-0 o0 rows happened 2 times"),
    "twice, by two hosts": (
        [*EFFECTS, effect("rows-0", "k3", "run_3")], [*MUTATIONS, mutation("k3", "run_3")],
        "rows-0 o0 rows happened 2 times"),
    "lost, and the ledger knows it": (
        EFFECTS[1:], [FAILED, MUTATIONS[1]], "1 of 2 effects are lost, first: rows-0 o0 rows"),
    "lost, and the ledger says that it happened": (
        EFFECTS[1:], MUTATIONS, "the ledger says that ('k1', 'rows-k1') happened, the service does not"),
    "failed, and there": (
        EFFECTS, [replace(FAILED, run_id="run_1"), MUTATIONS[1]], "mut_k1 is failed, and its effect is there"),
    "skipped, and there": (
        EFFECTS, [mutation("k1", "run_1", MutationStatus.SKIPPED), MUTATIONS[1]],
        "mut_k1 is skipped, and its effect is there"),
    "there, and not in the ledger": (
        EFFECTS, MUTATIONS[1:], "the service says that ('k1', 'rows-k1') happened, the ledger does not"),
    "with the result of another": (
        EFFECTS, [replace(MUTATIONS[0], result={"id": "rows-other"}), MUTATIONS[1]],
        "the ledger says that ('k1', 'rows-other') happened, the service does not"),
    "nobody wanted it": (
        [*EFFECTS, effect("rows-9", "k9", "run_9")], [*MUTATIONS, mutation("k9", "run_9")],
        "rows-9 o0 rows was not wanted"),
    "still in doubt": (
        EFFECTS, [mutation("k1", "run_1", MutationStatus.INDETERMINATE), MUTATIONS[1]],
        "mut_k1 is indeterminate in the end"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_judge_finds_what_is_wrong(what: str) -> None:
    effects, mutations, said = WRONG[what]
    assert said in judge(effects, mutations, [], WANTED)


def test_the_judge_finds_a_question_that_is_left() -> None:
    assert judge(EFFECTS, MUTATIONS, [QUESTION], WANTED) == [
        "a question stays open though all was answered: esc_1 (unknown_outcome)"]


# -- the way to the database -----------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[tuple[Proxy, socket.socket, socket.socket]]:
    """A proxy with one connection through it: the client's end, and the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listening, Proxy(listening.getsockname()[1]) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        server, _ = listening.accept()
        with client, server:
            client.settimeout(10)
            server.settimeout(10)
            client.sendall(b"hello")
            assert server.recv(100) == b"hello"
            yield proxy, client, server


def test_what_a_proxy_keeps_back_one_way_arrives_when_it_lets_go_and_the_other_way_is_open(
    echo: tuple[Proxy, socket.socket, socket.socket],
) -> None:
    proxy, client, server = echo
    for way, sender, hearer in (("forth", client, server), ("back", server, client)):
        proxy.hold(way)
        sender.sendall(b"one")
        hearer.sendall(b"other")
        assert sender.recv(100) == b"other"
        hearer.setblocking(False)
        with pytest.raises(BlockingIOError):
            hearer.recv(100)
        hearer.settimeout(10)
        proxy.let_go()
        assert hearer.recv(100) == b"one"


def test_what_a_proxy_kept_back_never_arrives_after_a_cut(echo: tuple[Proxy, socket.socket, socket.socket]) -> None:
    proxy, client, server = echo
    proxy.hold("commit")
    server.sendall(b"begun")
    assert client.recv(100) == b"begun"
    server.sendall(b"COMMIT\0")
    proxy.cut()
    proxy.let_go()
    assert client.recv(100) == b""
    assert server.recv(100) == b""
