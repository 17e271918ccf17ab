// Tells a channel when a price falls below a limit, once for each fall. Needs [connectors.web] and [connectors.slack].
export default Keep.workflow({
  name: "price-watch",

  topics: { "price.fell": {} },

  producers: {
    look: {
      publishes: ["price.fell"],
      schedule: { interval: "15m" },
      handler: async (ctx, state) => {
        const found = await ctx.web.get({ url: "https://api.example.com/v1/prices/bicycle" });
        const price = found.body.price;
        const low = price < 500;
        const falls = (state?.falls ?? 0) + (low && !state?.low ? 1 : 0);
        if (falls > (state?.falls ?? 0)) {
          const id = `fall-${falls}`;
          const inputId = ctx.registerInput({ source: "system", type: "schedule", id, title: `Bicycle at ${price}` });
          await ctx.publish("price.fell", { messageId: id, inputId, payload: { price } });
        }
        return { low, falls };
      },
    },
  },

  consumers: {
    tell: Keep.consumer({
      subscribe: ["price.fell"],
      publishes: [],
      async prepare(ctx) {
        const [event] = await ctx.peek("price.fell", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "price.fell", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Tell that the bicycle costs ${event.payload.price}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.slack.post({ channel: "#deals", text: `The bicycle costs ${prepared.data.price} now.` });
      },
    }),
  },
});
