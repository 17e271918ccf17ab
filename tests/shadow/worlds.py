# ruff: noqa: E501 (a script is read best on one line)
"""The workflows whose repairs are made bad: each has done well with some inputs, and failed with one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.harness import Story


@dataclass(frozen=True)
class World:
    """A workflow with a fault, its good repair, and an input with which the fault shows."""

    name: str
    handler: str
    faulty: str
    repair: str
    deliver: Callable[[Story, int], None]  # the input of this number; 0 is the one that fails


_POLL = """
    poll: {
      publishes: ["mail"], schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ after: state?.cursor });
        for (const m of mails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: m.id, title: `Mail ${m.subject}` });
          await ctx.publish("mail", { messageId: m.id, inputId, payload: { from: m.from, subject: m.subject } });
        }
        return { cursor: mails.lastCursor };
      },
    },"""

_PREPARE = """
      async prepare(ctx, state) {
        const [event] = await ctx.peek("mail", { limit: 5 });
        if (!event) return { reservations: [], data: {} };
        const { from, subject } = event.payload;
        return {
          reservations: [{ topic: "mail", ids: [event.messageId] }],
          data: { from, total: AMOUNT, count: (state?.count ?? 0) + 1 }, ui: { title: subject },
        };
      },"""

_NEXT = """
      async next(ctx, prepared, result) {
        return { count: (ctx.state?.count ?? 0) + 1 };
      },"""

_FAULT, _MENDED = "Number(subject.match(/total (\\d+)/)[1])", "Number(subject.match(/(\\d+)/)[1])"


def _script(name: str, mutate: str) -> str:
    return f"""
export default Keep.workflow({{
  name: "{name}", topics: {{ "mail": {{}} }},
  producers: {{{_POLL}
  }},
  consumers: {{
    act: Keep.consumer({{
      subscribe: ["mail"], publishes: [],{_PREPARE}
      async mutate(ctx, {{ data }}) {{
        {mutate}
      }},{_NEXT}
    }}),
  }},
}});
"""


def _mail(story: Story, number: int) -> None:
    subject = f"total {100 + number}" if number else "sum 100"
    story.world.deliver(subject=subject, from_=f"{'ann' if number % 2 else 'bob'}@here")


def worlds() -> list[World]:
    """All of them."""
    answer = _script("answer", "await ctx.gmail.send({ to: data.from, subject: `You owe ${data.total}`, body: `No. ${data.count}` });")
    book = _script("book", 'await ctx.sheets.appendRow({ spreadsheetId: "book", values: [data.from, data.total] });')
    return [
        World(each_name, "act", text.replace("AMOUNT", _FAULT), text.replace("AMOUNT", _MENDED), _mail)
        for each_name, text in (("answer", answer), ("book", book))
    ]
