// Posts every e-mail with "urgent" in its subject to a channel. Needs [connectors.mail] and [connectors.slack].
export default Keep.workflow({
  name: "urgent-mail-to-chat",

  topics: { "mail.urgent": {} },

  producers: {
    poll: {
      publishes: ["mail.urgent"],
      schedule: { interval: "2m" },
      handler: async (ctx, state) => {
        const mails = await ctx.mail.search({ query: "subject:urgent", after: state?.cursor });
        for (const mail of mails) {
          const inputId = ctx.registerInput({ source: "mail", type: "email", id: mail.id, title: mail.subject });
          const payload = { from: mail.from, subject: mail.subject };
          await ctx.publish("mail.urgent", { messageId: mail.id, inputId, payload });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },

  consumers: {
    post: Keep.consumer({
      subscribe: ["mail.urgent"],
      publishes: [],
      async prepare(ctx) {
        const [event] = await ctx.peek("mail.urgent", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "mail.urgent", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Post “${event.payload.subject}”` },
        };
      },
      async mutate(ctx, prepared) {
        const { from, subject } = prepared.data;
        await ctx.slack.post({ channel: "#support", text: `Urgent mail from ${from}: ${subject}` });
      },
    }),
  },
});
