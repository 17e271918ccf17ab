"""Replies of a model that gets a plan wrong twice, and a repair once, and then right."""

from __future__ import annotations

SCRIPT = """export default Keep.workflow({
  name: "receipts",
  topics: { "mail.received": {} },
  producers: {
    poll: {
      publishes: ["mail.received"],
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ query: "subject:receipt", after: state?.cursor });
        for (const mail of mails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: mail.id, title: mail.subject });
          await ctx.publish("mail.received", { messageId: mail.id, inputId, payload: { subject: mail.subject } });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail.received"],
      publishes: [],
      async prepare(ctx) {
        const [event] = await ctx.peek("mail.received", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "mail.received", ids: [event.messageId] }], data: event.payload,
                 ui: { title: event.payload.subject } };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ spreadsheetId: "receipts", values: [prepared.data.subject] });
      },
    }),
  },
});
"""
CASES = """[[case]]
name = "a receipt becomes a row"
[[case.answer]]
call = "gmail.search"
answer = [{ id = "1", from = "ann@example.com", to = "me@example.com", subject = "receipt 7", date = "", snippet = "" }]
page = { lastCursor = "1" }
[[case.expect.output]]
call = "sheets.appendRow"
params = { spreadsheetId = "receipts", values = ["receipt 7"] }

[[case]]
name = "no mail, no row"
[[case.answer]]
call = "gmail.search"
answer = []
page = { lastCursor = "0" }
"""
WRONG_CALL = SCRIPT.replace("ctx.sheets.appendRow", "ctx.sheets.insertRow")
WRONG_VALUE = SCRIPT.replace("values: [prepared.data.subject]", "values: [prepared.data.title]")
WHY = "Every mail with “receipt” in its subject becomes a row in the sheet receipts. It sends no mail."


def answer(script: str, cases: str | None = CASES, why: str = WHY) -> str:
    """A reply as the prompt asks for it."""
    blocks = f"\n```toml\n{cases}```\n" if cases is not None else ""
    return f"{why}\n\n```js\n{script}```\n{blocks}"


PLAN = (answer(WRONG_CALL), answer(WRONG_VALUE), answer(SCRIPT))
