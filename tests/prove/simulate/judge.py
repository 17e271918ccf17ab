"""What must be true at the end of a schedule: of the world outside, of the ledger, and of what people are told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from keepai.ledger.account import walk
from keepai.ledger.base import Reader
from keepai.ledger.invariants import check_invariants
from keepai.ledger.sqlite.connection import Statements
from keepai.model.ids import text_of
from tests import rules
from tests.crashes.invariants import broken
from tests.prove.simulate.schedule import POLICY, World, is_checked
from tests.prove.simulate.scripts import CALLS, OF_BOOKS
from tests.rules import Rows


def judge(world: World) -> None:
    """Everything that can be wrong, in words, into `world.problems`."""
    keep = world.keep
    if keep is None or keep._shared.parts is None:
        world.problems.append("no host was alive at the end")
        return
    read = keep.parts.ledger.reads
    world.loop.run(world.loop.time() + 120, stop=lambda: not read.all("run_active_all"))
    world.problems += [f"a lane failed: {error.get('exception')!r}" for error in world.loop.errors]
    _effects(world, read)
    _bounded(world)
    _told(world)
    _quiet(world, read)
    _rules(world)
    world.problems += broken(world.memory.connection) if is_checked(world.seed) else map(str, check_invariants(read))


def _effects(world: World, read: Reader) -> None:
    """Nothing happened twice for one attempt; what happened is on record, and what is on record happened."""
    connection = world.keep.parts.ledger._reader  # type: ignore[union-attr]
    done = Counter((e.operation, e.unit) for e in world.outside.effects)
    attempts = dict(connection.execute("select message_id, attempt from event where topic = 'orders'"))
    told = Counter(u for (u,) in connection.execute(
        "select json_extract(payload, '$.unit') from event where topic = 'filed'"))
    items = dict(connection.execute("select external_id, attempt from item"))
    filed: Counter[str] = Counter()
    if world.weather.shape == "books":
        _entered(world, done)
        return
    for (operation, unit), count in done.items():
        if unit.startswith("item "):
            most = items.get(unit.removeprefix("item "), 0)
            if count > most:
                world.problems.append(f"{operation} of {unit!r} took place {count} times in {most} attempts")
        elif operation == "rows.add":
            for id in unit.split("+"):
                filed[id] += count
        elif count > told[unit]:
            world.problems.append(f"{operation} of {unit!r} took place {count} times for {told[unit]} events")
    if world.weather.shared:
        filed = Counter({"newest": sum(filed.values())})
        _caused(world, read)
    world.problems += [
        f"order {id} was filed {count} times in {attempts.get(id, 0)} attempts"
        for id, count in filed.items() if count > attempts.get(id, 0)
    ]
    acts = {act for (act,) in connection.execute("select distinct act from action")}
    if world.weather.skips and any((move["machine"], move["target"]) == ("status", "failed") for move in walk(read)):
        world.problems.append("a run failed, and nothing was wrong but that a person was quicker")
    if world.weather.calm and acts - {"deploy", "reprocess"}:
        world.problems.append(f"nothing went wrong, and somebody was asked: {sorted(acts)}")
    if not acts & {"skip_run", "skip_input", "reject", "skip_event", "finish"}:
        _complete(world, filed, attempts, items, done)
    if "grant" not in acts:
        _approved(world)
    keys = {e.key for e in world.outside.effects}
    rows = connection.execute("select id, idempotency_key, status, resolution from mutation")
    for id, key, status, _ in rows:
        if status == "applied" and key not in keys:
            world.problems.append(f"{text_of(id)} counts as applied, and nothing took place")
        if status == "failed" and key in keys and not _resent(connection, key):
            world.problems.append(f"{text_of(id)} counts as failed, and it took place")


def _entered(world: World, done: Counter[tuple[str, str]]) -> None:
    """Where several write to the same books: each event led to one effect per attempt, and to none too many."""
    connection = world.memory.connection
    attempts = {
        ("mails.send", json.loads(payload)["unit"]) if topic == "booked" else ("books.enter", f"{topic[:-1]} {id}"): n
        for topic, id, payload, n in connection.execute("select topic, message_id, payload, attempt from event")}
    for each, count in done.items():
        if each[0] != "mails.send" and count > attempts.get(each, 0):
            world.problems.append(f"{each} took place {count} times in {attempts.get(each, 0)} attempts")
    acts = {act for (act,) in connection.execute("select distinct act from action")}
    if not acts & {"skip_run", "skip_input", "reject", "skip_event", "finish", "grant", "reprocess"} and not _now(
            world, world.keep.needs_you()):  # type: ignore[union-attr]
        world.problems += [
            f"{each[0]} of {each[1]!r} took place {done[each]} times, not {n}" for each, n in attempts.items()
            if done[each] != n]


def _rules(world: World) -> None:
    """What must hold of the rows of any ledger."""
    [[granted]] = world.memory.connection.execute("select count(*) from action where act = 'grant'")
    rows = Rows(world.memory.connection, () if granted else world.weather.asks)
    world.problems += [f"{rule}: {what}" for rule, what in rules.broken(rows)]


def _told(world: World) -> None:
    """What a call was given of those before it is, byte for byte, what they gave when they took place."""
    gave = {json.dumps(effect.result) for effect in world.outside.effects}
    for id, params in world.memory.connection.execute("select id, params from mutation order by seq"):
        for result in map(json.dumps, json.loads(params).get("of", ())):
            if result not in gave:
                world.problems.append(f"{text_of(id)} was given what nobody had given: {result}")


#: Triggers of a run that goes on by itself; with any other a person, or a new piece of work, has begun the count anew.
_BY_ITSELF = ("retry", "recovery")


def _bounded(world: World) -> None:
    """The same thing was sent only so often without a person; a doubt in between begins no new count. A version that
    somebody deployed does, also where a retry or a recovery is what the run goes on for."""
    rows = world.memory.connection.execute(
        "select r.lineage, r.trigger, r.major || '.' || r.minor, m.mutation_key, m.status, m.resolution from run r "
        "left join mutation m on m.run_id = r.id order by r.workflow_id, r.seq, m.seq")
    sent: Counter[tuple[str, str]] = Counter()
    versions: dict[str, str] = {}
    for lineage, trigger, version, key, status, resolution in rows:
        before, versions[lineage] = versions.get(lineage), version
        if trigger not in _BY_ITSELF or version != before:
            for each in [each for each in sent if each[0] == lineage]:
                del sent[each]
        if status != "failed":
            continue
        sent[lineage, key] += 1
        if sent[lineage, key] == POLICY.retries_max + 2:
            world.problems.append(f"the same thing failed {sent[lineage, key]} times, and was sent again each time")
        if resolution is not None:
            del sent[lineage, key]


def _caused(world: World, read: Reader) -> None:
    """Where all orders are one event: what was sent is caused by the order that it names and by those that it replaced
    before it was taken, not by one that came later; an order that nothing was sent for is late."""
    names = {i.id: i.external_id for i in _now(world, world.keep.inputs("orders"))}  # type: ignore[union-attr]
    place = {id: number for number, id in enumerate(world.outside.orders)}
    sent = set[str]()
    for output in _now(world, world.keep.outputs("orders")):  # type: ignore[union-attr]
        if output.mutation.operation != "add":
            continue
        newest, causes = output.mutation.params["unit"], {names[i.id] for i in output.inputs}
        sent |= causes
        if newest not in causes or any(place[id] > place[newest] for id in causes):
            world.problems.append(f"rows.add of {newest} is said to be caused by {sorted(causes)}")
    for input in _now(world, world.keep.inputs("orders")):  # type: ignore[union-attr]
        if (input.status == "done") != (input.external_id in sent) and input.status != "pending":
            world.problems.append(f"order {input.external_id} is {input.status}, and was caused to be sent: {sent}")


def _approved(world: World) -> None:
    """What a person must see first was never sent without a yes of its own."""
    for capability in world.weather.asks:
        [[sent, approved]] = world.memory.connection.execute(
            "select (select count(*) from mutation where connector || '.' || operation = :name), "
            "(select count(*) from approval where capability = :name and status = 'consumed')", {"name": capability})
        if sent != approved:
            world.problems.append(f"{capability} was sent {sent} times with {approved} approvals")


def _complete(
    world: World, filed: Counter[str], attempts: dict[str, int], items: dict[str, int], done: Counter[tuple[str, str]],
) -> None:
    """Where nobody gave anything up and nobody is asked, everything took place, once per attempt."""
    if _now(world, world.keep.needs_you()):  # type: ignore[union-attr]
        return
    world.problems += [f"order {i} was filed {filed[i]} times, not {n}" for i, n in attempts.items() if filed[i] != n]
    left = _left(world)
    for id, n in items.items():
        for operation in OF_BOOKS[1:] if world.weather.shape == "list" else CALLS:
            if not n - left[id] <= (found := done[operation, f"item {id}"]) <= n:
                world.problems.append(f"{operation} of item {id} took place {found} times, not {n}")


def _left(world: World) -> Counter[str]:
    """How many attempts at each item a person gave up by having it worked on from the start."""
    read = Statements(world.memory.connection)
    again = [move["subject"] for move in walk(read)
             if (move["machine"], move["source"], move["target"]) == ("item", "failed", "processing")]
    return Counter(str(row["external_id"]) for each in again if (row := read.one("item_by_id", item_id=each)))


def _resent(connection: object, key: str) -> bool:
    """Whether the same thing was sent again and that one is known to have happened."""
    found = connection.execute(  # type: ignore[attr-defined]
        "select 1 from mutation where idempotency_key = ? and status in ('applied', 'skipped') limit 1", (key,))
    return bool(list(found))


def _quiet(world: World, read: Reader) -> None:
    """After the quiet end all work is done, or a question about it stands open."""
    keep = world.keep
    assert keep is not None
    cards = _now(world, keep.needs_you())
    asked = {card.run_id for card in cards}
    world.problems += [f"{card.title!r} ({card.kind}) was asked, and no answer was of use" for card in cards]
    for row in read.all("run_open_all"):
        just_begun = row["status"] == "active" and world.clock.now_ms() - row["updated_at"] < 600_000
        if row["id"] not in asked and not just_begun:
            stands = f"{row['status']}:{row['reason']} in {row['phase']}"
            world.problems.append(f"run {row['id']} is {stands}, and nobody is asked")
    workflows = read.all("workflow_all")
    if not workflows:
        world.problems.append("nothing was ever deployed")
        return
    waiting = [i for i in _now(world, keep.inputs("orders")) if i.status == "pending"]
    if waiting and not cards and not _given_up(world):
        world.problems.append(f"{len(waiting)} inputs wait, and nobody is asked: {[i.title for i in waiting]}")
    known = {i.external_id for i in _now(world, keep.inputs("orders")) if i.source == "orders"}
    if world.weather.shape not in ("items", "letters", "list") and not cards and known != set(world.outside.orders):
        world.problems.append(f"orders that never came in: {sorted(set(world.outside.orders) - known)}")


def _given_up(world: World) -> bool:
    """Whether a person gave up a run that had pinned nothing: its handler looks again by the hour, here in a month."""
    return bool(list(world.memory.connection.execute(
        "select 1 from run r join action a on a.subject_id = r.id and a.act = 'skip_run' "
        "where r.kind = 'consumer' and r.status = 'abandoned' limit 1")))


def _now(world: World, coroutine: object) -> list:  # type: ignore[type-arg]
    """The answer of a coroutine that waits for nothing."""
    found: list = []  # type: ignore[type-arg]

    async def ask() -> None:
        found.extend(await coroutine)  # type: ignore[misc]

    asyncio._set_running_loop(None)
    world.spawn(ask())
    world.loop.run(world.loop.time() + 0.001, stop=lambda: False)
    return found
