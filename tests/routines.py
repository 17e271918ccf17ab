"""What tests of routines share: short ways to write them, and a connector that compares payloads."""

from __future__ import annotations

from typing import Any

from keepai import Call, Connector, Verdict, mutation
from keepai.model.records import Item, Mutation
from tests.harness import Story, js

#: An item's work: a row, then a mail that carries the row's result.
ROW_AND_MAIL = """
  if (ctx.item.isDone) return;
  const row = await ctx.sheets.appendRow({ spreadsheetId: "s", values: [item.id] });
  await ctx.gmail.send({ to: `${item.id}@example.com`, body: row.rowId });
"""

#: Mutations alone, for what is about one call.
ROW = 'await ctx.sheets.appendRow({ spreadsheetId: "s", values: [item.id] });'
MAIL = "await ctx.gmail.send({ to: `${item.id}@example.com`, body: item.payload });"
FIRE = "await ctx.webhook.fire({ of: item.id });"
GUARD = "if (ctx.item.isDone) return;"


def each(work: str = ROW_AND_MAIL, *, after: str = "") -> str:
    """A routine's body: every element of the feed is an item, worked on by `work`; then `after`."""
    return f"""
  for (const item of await ctx.feed.list({{}})) {{
    await ctx.withItem(item.id, item.title ?? `Item ${{item.id}}`, async (ctx) => {{ {work} }});
  }}
  {after}
"""


def guarded(*work: str, after: str = "") -> str:
    """The same, for items that are not done yet."""
    return each(" ".join((GUARD, *work)), after=after)


def routine(body: str | None = None, *, name: str = "story", interval: str = "5m", **more: str) -> str:
    """A workflow of one routine, `work`; `more` are the bodies of others beside it."""
    bodies = {"work": each() if body is None else body, **more}
    entries = ",\n".join(
        f"{handler}: {{ schedule: {{ interval: {js(interval)} }}, handler: async (ctx, state) => {{ {text} }} }}"
        for handler, text in bodies.items()
    )
    return f"export default Keep.workflow({{ name: {js(name)}, routines: {{\n{entries}\n}} }});\n"


async def items(story: Story, wf: str) -> dict[str, str]:
    """Item → how it stands."""
    return {item.external_id: str(item.status) for item in await story.keep.items(wf)}


async def item(story: Story, wf: str, external_id: str = "a") -> Item:
    """One item by the script's name for it."""
    [found] = [i for i in await story.keep.items(wf) if i.external_id == external_id]
    return found


async def last_mutation(story: Story, wf: str) -> Mutation:
    """The newest mutation."""
    return (await story.keep.mutations(wf))[-1]


def sent(story: Story, operation: str = "gmail.send") -> list[Any]:
    """The params of what really took effect, in order."""
    return [effect.params for effect in story.world.effects_of(operation)]


def took_place(story: Story) -> list[str]:
    """Which operations took effect, in order."""
    return [effect.operation for effect in story.world.effects]


#: A result with everything that a careless copy would change.
ODD: dict[str, Any] = {
    "zeta": 1, "alpha": {"b": [1.5, -0.25, 1e-7, 9007199254740991], "a": None}, "": [],
    "text": "naïve „x“ \u2028 🎉 \" \\ \n",
}


class Desk(Connector):
    """`desk`: `file` compares payloads, `stamp` does not; both can be looked up by their key."""

    def __init__(self) -> None:
        super().__init__()
        self.filed: list[dict[str, Any]] = []
        self.compared: list[tuple[Any, Any]] = []
        self.keys: list[str] = []

    @mutation(identity=("folder", "name"), target="folder", settle=0)
    async def file(self, params: dict[str, Any], call: Call) -> Any:
        """Put a text into a folder."""
        return self._take(params, call)

    @file.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """By its key."""
        return Verdict.applied(ODD) if call.idempotency_key in self.keys else Verdict.failed()

    @file.compare_payload
    def same(self, old: Any, new: Any) -> Any:
        """White space means nothing, case a little, everything else a lot."""
        self.compared.append((old, new))
        before, now = str(old.get("text")), str(new.get("text"))
        if before.split() == now.split():
            return "equivalent"
        return "minor" if before.lower() == now.lower() else "significant"

    @mutation(identity=("folder",), target="folder", settle=0)
    async def stamp(self, params: dict[str, Any], call: Call) -> Any:
        """Stamp a folder."""
        return self._take(params, call)

    def _take(self, params: dict[str, Any], call: Call) -> Any:
        self.filed.append(params)
        self.keys.append(call.idempotency_key)
        return ODD
