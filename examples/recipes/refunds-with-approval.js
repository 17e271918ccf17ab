// Sends each refund that the support team asks for, after a person has approved it. Needs [connectors.forms] and
// [connectors.web]; keep.toml says that web.post asks.
export default Keep.workflow({
  name: "refunds-with-approval",

  topics: { "refund.wanted": {} },

  producers: {
    takeIn: {
      publishes: ["refund.wanted"],
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const forms = await ctx.forms.list({ after: state?.cursor });
        for (const { id, body: { order, amount } } of forms) {
          const inputId = ctx.registerInput({ source: "forms", type: "delivery", id, title: `Refund of order ${order}` });
          await ctx.publish("refund.wanted", { messageId: id, inputId, payload: { order, amount } });
        }
        return { cursor: forms.lastCursor };
      },
    },
  },

  consumers: {
    refund: Keep.consumer({
      subscribe: ["refund.wanted"],
      publishes: [],
      async prepare(ctx) {
        const [event] = await ctx.peek("refund.wanted", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "refund.wanted", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Refund ${event.payload.amount} for order ${event.payload.order}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.web.post({ url: "https://api.example.com/v1/refunds", body: prepared.data });
      },
    }),
  },
});
