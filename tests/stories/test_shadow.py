"""A new script is run over what earlier runs were given, and compared with what they did; nothing outside notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keepai.engine.shadow import CHANGED, FAILS, NOT_COMPARABLE, ShadowedRun, ShadowReport
from keepai.model.policy import Policy
from tests.harness import Story

MAILS = """
export default Keep.workflow({
  name: "mails",
  topics: { "mail": {}, "sent": {} },
  producers: {
    poll: {
      publishes: ["mail"], schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ after: state?.cursor });
        for (const m of mails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: m.id, title: `Mail ${m.subject}` });
          await ctx.publish("mail", { messageId: m.id, inputId, payload: { subject: m.subject, at: Date.now() } });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
  consumers: {
    answer: Keep.consumer({
      subscribe: ["mail"], publishes: ["sent"],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("mail");
        if (!event) return { reservations: [], data: {} };
        const whole = await ctx.gmail.get({ id: event.messageId });
        return {
          reservations: [{ topic: "mail", ids: [event.messageId] }],
          data: { subject: event.payload.subject, from: whole.from, number: (state?.count ?? 0) + 1, luck: Math.random() },
          ui: { title: `Answer ${event.payload.subject}` },
        };
      },
      async mutate(ctx, { data }) {
        await ctx.gmail.send({ to: data.from, subject: `Re: ${data.subject}`, body: `No. ${data.number}, ${data.luck}` });
      },
      async next(ctx, prepared, result) {
        await ctx.publish("sent", { messageId: `sent:${prepared.data.subject}`, payload: { at: Date.now() } });
        return { count: (ctx.state?.count ?? 0) + 1 };
      },
    }),
  },
});
"""

LIST = """
export default Keep.workflow({
  name: "list", topics: {},
  routines: {
    book: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        for (const mail of await ctx.gmail.search({})) {
          await ctx.withItem(mail.id, `Mail ${mail.subject}`, async (ctx) => {
            if (ctx.item.isDone) return;
            const row = await ctx.sheets.appendRow({ spreadsheetId: "book", values: [mail.subject, Math.random()] });
            await ctx.gmail.send({ to: mail.from, subject: `Booked ${mail.subject} as ${row.rowId}` });
          });
        }
        return { seen: (state?.seen ?? 0) + 1 };
      },
    },
  },
});
"""


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    async with Story(tmp_path) as made:
        yield made


async def mails(story: Story, count: int, first: int = 1) -> None:
    """So many mails come, one after the other, and are worked on."""
    for number in range(first, first + count):
        story.world.deliver(subject=f"s{number}", from_=f"{number}@here")
        await story.run(minutes=5)


async def lived(story: Story, source: str = MAILS, count: int = 3) -> str:
    wf = await story.deploy(source)
    await mails(story, count)
    return wf


def only(report: ShadowReport, verdict: str = CHANGED) -> ShadowedRun:
    """The first run that is not the same; they all are of this verdict."""
    assert {each.verdict for each in report.differing} == {verdict}, report
    return report.differing[0]


@pytest.mark.parametrize("source", [MAILS, LIST], ids=["events", "items"])
async def test_an_unchanged_script_does_the_same_and_nothing_leaves_the_host(story: Story, source: str) -> None:
    wf = await lived(story, source)
    calls, version = len(story.world.asked), await story.keep.version()
    report = await story.keep.shadow(wf, source)
    assert report.all_same, report
    assert report.runs == (6 if source == MAILS else 3)
    assert (len(story.world.asked), await story.keep.version()) == (calls, version)
