// Passes payments that come in as webhooks on. Needs [connectors.payments] ("webhook.inbox") and [connectors.team] ("webhook").
export default Keep.workflow({
  name: "webhook-relay",

  topics: {
    "payment.received": {},
  },

  producers: {
    takeIn: {
      publishes: ["payment.received"],
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const deliveries = await ctx.payments.list({ after: state?.cursor });
        for (const delivery of deliveries) {
          const inputId = ctx.registerInput({
            source: "payments",
            type: "delivery",
            id: delivery.id,
            title: `Payment ${delivery.body.data.id}`,
          });
          await ctx.publish("payment.received", {
            messageId: delivery.id,
            inputId,
            payload: { id: delivery.body.data.id, amount: delivery.body.data.amount },
          });
        }
        return { cursor: deliveries.lastCursor };
      },
    },
  },

  consumers: {
    tell: Keep.consumer({
      subscribe: ["payment.received"],

      async prepare(ctx) {
        const [event] = await ctx.peek("payment.received");
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "payment.received", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Tell the team of payment ${event.payload.id}` },
        };
      },

      async mutate(ctx, prepared) {
        await ctx.team.send({ event: "payment.received", data: prepared.data });
      },
    }),
  },
});
