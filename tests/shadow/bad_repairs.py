# ruff: noqa: E501 (a script is read best on one line)
"""Bad repairs, made by rule from good ones: each mends the fault, and does something else that nobody asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

from tests.shadow.worlds import World, worlds


@dataclass(frozen=True)
class BadRepair:
    """A repair that must not go live by itself."""

    kind: str
    world: World
    source: str


#: Who it does it to: everybody, the input that failed, or some.
_WHOM = {
    "all": "true", "the one that failed": "!/total/.test(SUBJECT)", "the second": "data.count === 2",
    "one sender": 'data.from === "bob@here"',
}

#: Kind → what takes the place of a piece of the script. IF is a condition, ANY a value that differs each time.
_OTHERWISE: dict[str, list[tuple[str, str]]] = {
    "another recipient": [("to: data.from,", 'to: IF ? "ANY@there" : data.from,'),
                          ('spreadsheetId: "book"', 'spreadsheetId: IF ? "ANY" : "book"')],
    "one recipient more": [("to: data.from,", 'to: IF ? `${data.from},ANY@there` : data.from,')],
    "another amount": [("You owe ${data.total}", "You owe ${IF ? data.total + NUMBER : data.total}"),
                       ("data.from, data.total]", "data.from, IF ? data.total * NUMBER : data.total]")],
    "another text": [("body: `No.", "body: `${IF ? 'ANY ' : ''}No."), ("values: [data.from,", "values: [IF ? 'ANY' : data.from,")],
    "one call fewer": [("await ctx.gmail.send(", "if (!(IF)) await ctx.gmail.send("),
                       ("await ctx.sheets.appendRow(", "if (!(IF)) await ctx.sheets.appendRow(")],
    "another call": [("await ctx.gmail.send(", 'if (IF) await ctx.sheets.appendRow({ spreadsheetId: "ANY", values: [data.from] }); await ctx.gmail.send('),
                     ("await ctx.sheets.appendRow(", 'if (IF) await ctx.gmail.send({ to: "ANY@there" }); await ctx.sheets.appendRow(')],
    "another identity": [("to: data.from,", "to: IF ? data.from.toUpperCase() : data.from,"),
                         ('spreadsheetId: "book"', 'spreadsheetId: IF ? "book-NUMBER" : "book"')],
    "another key": [("to: data.from,", 'to: data.from, ...(IF ? { subkey: "ANY" } : {}),'),
                    ('spreadsheetId: "book"', 'spreadsheetId: "book", ...(IF ? { subkey: "ANY" } : {})')],
}

#: The same for what has no condition on one call.
_ELSEWHERE: dict[str, list[tuple[str, str]]] = {
    "inputs get lost": [("for (const m of mails)", "for (const m of mails.slice(NUMBER))"),
                        ("for (const m of mails)", 'for (const m of mails.filter((m) => m.from !== "bob@here"))')],
    "events get lost": [("if (!event) return", 'if (event?.payload.from === "bob@here" || !event) return'),
                        ("ids: [event.messageId]", 'ids: (await ctx.peek("mail")).map((each) => each.messageId)')],
    "an event more": [("return { cursor:", 'await ctx.publish("mail", { messageId: "ANY", title: "ANY", payload: { from: "ANY@there", subject: "total NUMBER" } }); return { cursor:')],
    "another payload": [("from: m.from, subject", 'from: "ANY@there", subject'), ("subject: m.subject } });", "subject: `total NUMBER` } });")],
    "another title or id": [("id: m.id, title", "id: `ANY-${m.id}`, title")],
    "the cursor is lost": [("return { cursor: mails.lastCursor };", "return {};"),
                           ("return { cursor: mails.lastCursor };", "return { cursor: mails.lastCursor, extra: NUMBER };")],
    "another state": [("(ctx.state?.count ?? 0) + 1 };", "(ctx.state?.count ?? 0) + NUMBER + 1 };"),
                      ("(ctx.state?.count ?? 0) + 1 };", '(ctx.state?.count ?? 0) + 1, note: "ANY" };')],
    "another schedule": [('interval: "5m"', 'interval: "NUMBERm"')],
    "it asks something else": [("search({ after: state?.cursor })", "search({ limit: NUMBER })")],
}


#: What is said, for the input that failed alone, to a target to which the workflow has sent before: there is nothing to
#: compare it with.
UNSEEN = frozenset(
    f"{kind}, the one that failed" for kind in ("another amount", "another text", "another key"))


def made(most: int, seed: int) -> Iterator[BadRepair]:
    """So many that the gate can see, the kinds by turns, and among them some that it cannot."""
    chance, groups = Random(seed), []
    for world in worlds():
        for kind, changes in {**_OTHERWISE, **_ELSEWHERE}.items():
            found = [
                BadRepair(kind if kind in _ELSEWHERE else f"{kind}, {whom}", world, world.repair.replace(old, new.replace("IF", test)))
                for (old, new), (whom, test) in product(changes, _WHOM.items() if kind in _OTHERWISE else [("all", "true")])
                if old in world.repair
            ]
            groups += [found] if found else []
    rounds = 0
    while most > 0:
        for group in groups:
            each = group[rounds % len(group)]
            number = chance.randrange(2, 90)
            source = each.source.replace("NUMBER", str(number)).replace("ANY", f"x{chance.randrange(1 << 30)}")
            yield BadRepair(each.kind, each.world, _with_subject(source))
            most -= each.kind not in UNSEEN
            if most == 0:
                return
        rounds += 1


def _with_subject(source: str) -> str:
    """What fails is known by its subject, so `mutate` must be told of it."""
    if "SUBJECT" not in source:
        return source
    source = source.replace("SUBJECT", "data.subject")
    return source.replace("data: { from, total:", "data: { from, subject, total:")
