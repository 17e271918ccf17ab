// Posts every new entry of a feed to a channel. Needs [connectors.news] of type "rss" and [connectors.slack].
export default Keep.workflow({
  name: "feed-to-slack",

  topics: {
    "entry.published": {},
  },

  producers: {
    readFeed: {
      publishes: ["entry.published"],
      schedule: { interval: "15m" },
      handler: async (ctx, state) => {
        const entries = await ctx.news.entries({ after: state?.cursor });
        for (const entry of entries) {
          const inputId = ctx.registerInput({
            source: "news",
            type: "entry",
            id: entry.id,
            title: `Entry “${entry.title}”`,
          });
          await ctx.publish("entry.published", {
            messageId: entry.id,
            inputId,
            payload: { title: entry.title, link: entry.link },
          });
        }
        return { cursor: entries.lastCursor };
      },
    },
  },

  consumers: {
    tellTeam: Keep.consumer({
      subscribe: ["entry.published"],

      async prepare(ctx) {
        const [event] = await ctx.peek("entry.published");
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "entry.published", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Tell the team of “${event.payload.title}”` },
        };
      },

      async mutate(ctx, prepared) {
        const { title, link } = prepared.data;
        await ctx.slack.post({ channel: "#news", text: `${title}\n${link}` });
      },
    }),
  },
});
