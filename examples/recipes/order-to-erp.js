// Books each order that a shop sends as a webhook, after a person has approved it. Needs [connectors.orders] and
// [connectors.erp]; keep.toml says that erp.insert asks.
export default Keep.workflow({
  name: "order-to-erp",

  topics: { "order.placed": {} },

  producers: {
    takeIn: {
      publishes: ["order.placed"],
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const orders = await ctx.orders.list({ after: state?.cursor });
        for (const { body: { id, customer, total } } of orders) {
          // The shop's own number of the order: a webhook that comes twice is one order.
          const inputId = ctx.registerInput({ source: "orders", type: "delivery", id, title: `Order ${id} of ${customer}` });
          await ctx.publish("order.placed", { messageId: id, inputId, payload: { id, customer, total } });
        }
        return { cursor: orders.lastCursor };
      },
    },
  },

  consumers: {
    book: Keep.consumer({
      subscribe: ["order.placed"],
      publishes: [],
      async prepare(ctx) {
        const [event] = await ctx.peek("order.placed", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "order.placed", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Book order ${event.payload.id} of ${event.payload.customer}: ${event.payload.total}` },
        };
      },
      async mutate(ctx, prepared) {
        const { id, customer, total } = prepared.data;
        await ctx.erp.insert({ table: "orders", key: { id }, values: { customer, total } });
      },
    }),
  },
});
