// Sends forms to a service that takes several at once: five in a call, or what is there after fifteen minutes. Needs
// [connectors.forms] and [connectors.web].
const MOST = 5;
const LONGEST_MS = 15 * 60_000;

export default Keep.workflow({
  name: "rows-in-batches",

  topics: { "form.received": {} },

  producers: {
    read: {
      publishes: ["form.received"],
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const forms = await ctx.forms.list({ after: state?.cursor });
        for (const form of forms) {
          const inputId = ctx.registerInput({
            source: "forms", type: "delivery", id: form.id, title: `Form of ${form.body.name}`,
          });
          const payload = { row: form.body, at: form.receivedAt };
          await ctx.publish("form.received", { messageId: form.id, inputId, payload });
        }
        return { cursor: forms.lastCursor };
      },
    },
  },

  consumers: {
    send: Keep.consumer({
      subscribe: ["form.received"],
      publishes: [],
      async prepare(ctx) {
        const events = await ctx.peek("form.received", { limit: MOST });
        if (events.length === 0) return { reservations: [], data: {} };
        const latest = Date.parse(events[0].payload.at) + LONGEST_MS;
        if (events.length < MOST && Date.now() < latest) {
          // The batch is not full: look again when its first form has waited long enough, or when another comes in.
          return { reservations: [], data: {}, wakeAt: new Date(latest).toISOString() };
        }
        return {
          reservations: [{ topic: "form.received", ids: events.map((event) => event.messageId) }],
          data: {},
          ui: { title: `Send ${events.length} forms` },
        };
      },
      async mutate(ctx, prepared) {
        const rows = prepared.events.map(({ payload }) => payload.row);
        await ctx.web.post({ url: "https://api.example.com/v1/rows", body: { rows } });
      },
    }),
  },
});
