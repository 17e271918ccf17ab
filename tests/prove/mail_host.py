"""A host that answers mail, to be killed: `python -m tests.prove.mail_host '{"folder": …}'`.

It serves until every mail of the inbox is answered. Questions are answered by a person who looks at what the mail
server took, `taken.json` in its folder, and says what is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from keepai import Keep, Policy
from keepai.connectors import make
from keepai.connectors.base import Connector
from keepai.connectors.mail.delivery import message_id
from keepai.model.errors import Conflict, Refused
from keepai.testing import install_from_env

SETTLE_S = 0.2  # the server on this machine finds at once what it has confirmed
SCRIPT = """export default Keep.workflow({
  name: "answers",
  topics: { "email.received": {}, "email.answered": {} },
  producers: {
    poll: {
      publishes: ["email.received"],
      schedule: { interval: "1s" },
      handler: async (ctx, state) => {
        const emails = await ctx.gmail.search({ after: state?.cursor });
        for (const e of emails) {
          const inputId = ctx.registerInput({ source: "gmail", type: "email", id: e.id, title: e.subject });
          await ctx.publish("email.received", { messageId: e.id, inputId, payload: { subject: e.subject } });
        }
        return { cursor: emails.lastCursor };
      },
    },
  },
  consumers: {
    answer: Keep.consumer({
      subscribe: ["email.received"],
      publishes: ["email.answered"],
      async prepare(ctx) {
        const [event] = await ctx.peek("email.received");
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "email.received", ids: [event.messageId] }], data: event.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.gmail.send({ to: "ann@example.com", subject: prepared.data.subject, body: "Thank you." });
      },
      async next(ctx, prepared, result) {
        await ctx.publish("email.answered", { messageId: prepared.data.subject, payload: { status: result.status } });
      },
    }),
  },
});"""


def connector(order: dict[str, Any]) -> Connector:
    """The mailbox."""
    made = make("mail", "gmail", order["settings"])
    made.entrust({"password": order["password"]})
    quick = {name: dataclasses.replace(op, settle_s=SETTLE_S) for name, op in made.operations.items()}
    made.__dict__["operations"] = quick
    return made


async def live(order: dict[str, Any]) -> None:
    """Serve until all is done."""
    folder = Path(order["folder"])
    policy = Policy(
        producer_interval_s=1, retry_first_s=0.1, retry_longest_s=0.5, retries_max=20, crashes_max=10_000,
        reconcile_first_s=0.2, reconcile_longest_s=1.0, reconciles_max=5, call_s=60.0,
    )
    async with Keep(folder / "keep.db", connectors=[connector(order)], policy=policy) as keep:
        wf = (await keep.deploy(SCRIPT, grants="all")).workflow_id
        serving = asyncio.ensure_future(keep.serve())
        while not serving.done():
            for question in await keep.needs_you():
                await answer(keep, question, folder, order["settings"]["address"])
            if len(await keep.events(wf, topic="email.answered")) >= order["mails"]:
                serving.cancel()
                (folder / "ledger.json").write_text(json.dumps(
                    [[m.idempotency_key, str(m.status)] for m in await keep.mutations(wf)]
                ))
                return
            await asyncio.sleep(0.05)
        serving.result()


async def answer(keep: Keep, question: Any, folder: Path, address: str) -> None:
    """A person says what is true, where that is offered."""
    with contextlib.suppress(Refused, Conflict):
        if question.kind == "unknown_outcome" and question.mutation_id:
            id = message_id(question.facts["idempotency_key"], address)
            happened = id in json.loads((folder / "taken.json").read_text())
            word = "happened" if happened else "did_not_happen"
            if word in question.actions:
                await keep.resolve(question.mutation_id, word, *([{"id": id}] if happened else []))
                with (folder / "answers").open("a") as file:
                    file.write(f"{word}\n")
        elif "retry" in question.actions:
            await keep.retry(question.run_id)


if __name__ == "__main__":
    install_from_env()
    asyncio.run(live(json.loads(sys.argv[1])))
