// Answers each new mail of a person once, and marks it as answered. Mail that a machine sent is left alone.
export default Keep.workflow({
  name: "auto-reply",

  topics: {
    "email.received": {},
    "email.answered": {},
  },

  producers: {
    pollEmail: {
      publishes: ["email.received"],
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const emails = await ctx.gmail.search({ query: "newer_than:24h", after: state?.cursor });
        for (const e of emails) {
          if (e.automatic) continue;
          const inputId = ctx.registerInput({
            source: "gmail",
            type: "email",
            id: e.id,
            title: `Email from ${e.from}: "${e.subject}"`,
          });
          await ctx.publish("email.received", {
            messageId: e.id,
            inputId,
            payload: { id: e.id, from: e.from, subject: e.subject },
          });
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
        return {
          reservations: [{ topic: "email.received", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Answer ${event.payload.from}` },
        };
      },

      async mutate(ctx, prepared) {
        await ctx.gmail.reply({
          id: prepared.data.id,
          to: prepared.data.from,
          body: "Thank you for your message. You will hear from us tomorrow.",
        });
      },

      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status === "applied") {
          await ctx.publish("email.answered", {
            messageId: `answer:${prepared.data.id}`,
            payload: { id: prepared.data.id, answer: mutationResult.result.id },
          });
        }
      },
    }),

    mark: Keep.consumer({
      subscribe: ["email.answered"],

      async prepare(ctx) {
        const [event] = await ctx.peek("email.answered");
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "email.answered", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: "Mark as answered" },
        };
      },

      async mutate(ctx, prepared) {
        await ctx.gmail.label({ id: prepared.data.id, add: ["answered", "keep"] });
      },
    }),
  },
});
