// Posts the state of a ticket once nobody has changed it for ten minutes. Needs [connectors.forms] and [connectors.slack].
const QUIET_MS = 10 * 60_000;

export default Keep.workflow({
  name: "settled-tickets",

  topics: { "ticket.changed": {} },

  producers: {
    read: {
      publishes: ["ticket.changed"],
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const changes = await ctx.forms.list({ after: state?.cursor });
        for (const change of changes) {
          const { ticket, status } = change.body;
          const inputId = ctx.registerInput({
            source: "forms", type: "delivery", id: change.id, title: `Ticket ${ticket} is ${status}`,
          });
          const payload = { ticket, status, at: change.receivedAt };
          await ctx.publish("ticket.changed", { messageId: change.id, inputId, payload });
        }
        return { cursor: changes.lastCursor };
      },
    },
  },

  consumers: {
    post: Keep.consumer({
      subscribe: ["ticket.changed"],
      publishes: [],
      async prepare(ctx) {
        // All that waits, by ticket: the changes of one ticket are taken together, the newest is posted.
        const tickets = {};
        for (const event of await ctx.peek("ticket.changed")) (tickets[event.payload.ticket] ??= []).push(event);
        const settledAt = (events) => Math.max(...events.map(({ payload }) => Date.parse(payload.at))) + QUIET_MS;
        const times = Object.values(tickets).map(settledAt);
        const settled = Object.values(tickets).find((events) => settledAt(events) <= Date.now());
        if (!settled) {
          // Nothing is settled yet: look again when the first one may be, or when something comes in.
          const wakeAt = times.length ? new Date(Math.min(...times)).toISOString() : undefined;
          return { reservations: [], data: {}, wakeAt };
        }
        const { ticket, status } = settled[settled.length - 1].payload;
        return {
          reservations: [{ topic: "ticket.changed", ids: settled.map((event) => event.messageId) }],
          data: { ticket, status },
          ui: { title: `Post that ticket ${ticket} is ${status}` },
        };
      },
      async mutate(ctx, prepared) {
        const { ticket, status } = prepared.data;
        await ctx.slack.post({ channel: "#support", text: `Ticket ${ticket} is ${status}` });
      },
    }),
  },
});
