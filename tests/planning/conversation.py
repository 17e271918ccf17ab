"""Replies of a model that gets a plan wrong twice, and a repair once, and then right."""

from __future__ import annotations

SCRIPT = """export default Keep.workflow({
  name: "receipts",
  routines: { file: { schedule: { cron: "0 9 * * *" }, handler: async (ctx) => {
    const mails = await ctx.gmail.search({ query: "subject:receipt" });
    for (const mail of mails) {
      await ctx.withItem(mail.id, mail.subject, async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.sheets.appendRow({ spreadsheetId: "receipts", values: [mail.subject] });
      });
    }
  } } },
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
"""
WRONG_CALL = SCRIPT.replace("ctx.sheets.appendRow", "ctx.sheets.insertRow")
WRONG_VALUE = SCRIPT.replace("values: [mail.subject]", "values: [mail.from]")
WHY = "Every mail with “receipt” in its subject becomes a row in the sheet receipts. It sends no mail."


def answer(script: str, cases: str | None = CASES, why: str = WHY) -> str:
    """A reply as the prompt asks for it."""
    blocks = f"\n```toml\n{cases}```\n" if cases is not None else ""
    return f"{why}\n\n```js\n{script}```\n{blocks}"


PLAN = (answer(WRONG_CALL), answer(WRONG_VALUE), answer(SCRIPT))


#: A workflow whose script reads an API that has changed since, and the script that reads it as it is now.
SHOP = """export default Keep.workflow({
  name: "shop",
  routines: { file: { schedule: { cron: "0 9 * * *" }, handler: async (ctx) => {
    const answer = await ctx.shop.get({ url: "URL/orders" });
    for (const order of answer.body.orders) {
      await ctx.withItem(order.id, `Order ${order.id}`, async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [order.id, order.customer.name] });
      });
    }
  } } },
});
"""
SHOP_CASES = """[[case]]
name = "an order becomes a row"
[[case.answer]]
call = "shop.get"
answer = { status = 200, body = { orders = [{ id = "7", customer = { name = "Ann" } }] } }
[[case.expect.output]]
call = "sheets.appendRow"
params = { spreadsheetId = "orders", values = ["7", "Ann"] }
"""
MENDED = SHOP.replace("order.customer.name", "order.customerName")
MENDED_CASES = SHOP_CASES.replace("customer = { name = ", "customerName = ").replace('"Ann" } }]', '"Ann" }]')
