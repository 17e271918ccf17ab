// Sends what is new in a feed as one e-mail each weekday morning. Needs [connectors.news] and [connectors.mail].
export default Keep.workflow({
  name: "feed-digest",

  topics: { "entry.published": {} },

  producers: {
    read: {
      publishes: ["entry.published"],
      schedule: { cron: "0 7 * * 1-5", tz: "Europe/Berlin" },
      handler: async (ctx, state) => {
        const entries = await ctx.news.entries({ after: state?.cursor });
        for (const entry of entries) {
          const inputId = ctx.registerInput({ source: "news", type: "entry", id: entry.id, title: entry.title });
          const payload = { title: entry.title, link: entry.link };
          await ctx.publish("entry.published", { messageId: entry.id, inputId, payload });
        }
        return { cursor: entries.lastCursor };
      },
    },
  },

  consumers: {
    digest: Keep.consumer({
      subscribe: ["entry.published"],
      publishes: [],
      async prepare(ctx) {
        // One run takes everything that waits, and the e-mail shows all of it as its causes.
        const events = await ctx.peek("entry.published");
        if (events.length === 0) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "entry.published", ids: events.map((event) => event.messageId) }],
          data: {},
          ui: { title: `Digest of ${events.length} entries` },
        };
      },
      async mutate(ctx, prepared) {
        const lines = prepared.events.map(({ payload }) => `${payload.title}\n${payload.link}`);
        await ctx.mail.send({ to: "team@example.com", subject: `${lines.length} new`, body: lines.join("\n\n") });
      },
    }),
  },
});
