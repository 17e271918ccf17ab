"""Two versions of a workflow, drawn by chance, and what has happened to the first of them when the second comes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.harness import APPEND, FIRE, NOTHING, SEND, consumer, js, producer, take_all, take_first, workflow

MUTATES = (SEND, SEND, APPEND, FIRE, "if (prepared.data.messageId?.endsWith('1')) return;" + SEND, "null.x;", None)
PREPARES = (take_first(), take_first(), take_first(), take_all(), "if (state === 1) null.x;" + take_first(), NOTHING,
            "const seen = await ctx.feed.list({});" + take_first(), "null.x;")
NEXTS = (None, None, "", "null.x;", "return { seen: 1 };", "publish")
PUBLISH = "await ctx.publish('out', { messageId: prepared.data.messageId ?? 'all', payload: 1 });"
ROUTINE = """
  for (const item of await ctx.feed.list({})) {
    await ctx.withItem(item.id, `Item ${item.id}`, async (ctx) => { if (ctx.item.isDone) return; WORK });
  }"""
WORKS = ("await ctx.gmail.send({ to: item.id });", "await ctx.webhook.fire({ of: item.id });", "null.x;", "")
CAPABILITIES = ("gmail.send", "sheets.appendRow", "webhook.fire")


@dataclass(frozen=True)
class Drawn:
    """A version by its parts."""

    handler: str | None = "act"  # of the topic `in`; None: nobody takes it
    mutate: str | None = SEND
    prepare: str = take_first()
    next: str | None = None
    results: str | None = None  # the handler of the topic `out`, if there is one
    routine: str | None = None  # its work
    named: str = "work"  # the routine
    head: str = ""

    def source(self, name: str) -> str:
        """The script."""
        consumers = {}
        if self.handler:
            publishes = ["out"] if self.next == "publish" else []
            body = PUBLISH if self.next == "publish" else self.next
            consumers[self.handler] = consumer(
                self.prepare, mutate=self.mutate, next=body, publishes=publishes)
        if self.results:
            consumers[self.results] = consumer(subscribe=["out"], mutate=APPEND)
        text = workflow(name, producers={"poll": producer()}, consumers=consumers, head=self.head)
        if self.routine is None:
            return text
        body = ROUTINE.replace("WORK", self.routine)
        return text.replace("consumers: {", f"""routines: {{ {self.named}: {{
          schedule: {{ interval: {js('5m')} }}, handler: async (ctx) => {{ {body} }} }} }},
  consumers: {{""", 1)


def drawn(chance: Random) -> Drawn:
    """A first version."""
    return Drawn(
        mutate=chance.choice(MUTATES), prepare=chance.choice(PREPARES), next=chance.choice(NEXTS),
        results=chance.choice((None, None, "file")), routine=chance.choice((None, None, *WORKS)),
    )


def changed(first: Drawn, chance: Random) -> Drawn:
    """A later version: one to three things differ."""
    new = replace(first, head=f"// {chance.random()}")
    for _ in range(chance.randint(1, 3)):
        new = chance.choice((
            lambda d: replace(d, mutate=chance.choice(MUTATES)),
            lambda d: replace(d, prepare=chance.choice(PREPARES)),
            lambda d: replace(d, next=chance.choice(NEXTS)),
            lambda d: replace(d, handler=chance.choice((None, "other", "act"))),
            lambda d: replace(d, results=chance.choice((None, "file", "keep_them"))),
            lambda d: replace(d, routine=chance.choice((None, *WORKS))),
            lambda d: replace(d, named=chance.choice(("work", "labour"))),
            lambda d: d,
        ))(new)
    return new


def grants(chance: Random) -> dict[str, str]:
    """What a person has granted."""
    return {"feed.list": "allow", **{each: chance.choice(("allow", "allow", "allow", "ask", "deny"))
                                     for each in CAPABILITIES}}
