// Writes an invoice for every order of a database. Needs [connectors.books] of type "sql" with both tables.
export default Keep.workflow({
  name: "orders-to-invoices",

  topics: {
    "order.placed": {},
    "invoice.written": {},
  },

  producers: {
    pollOrders: {
      publishes: ["order.placed"],
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const orders = await ctx.books.query({
          table: "orders", where: { total: { ">": 0 } }, order: ["id"], limit: 500, after: state?.cursor,
        });
        for (const order of orders) {
          const id = String(order.id);
          const inputId = ctx.registerInput({ source: "books", type: "row", id, title: `Order ${id}` });
          await ctx.publish("order.placed", { messageId: id, inputId, payload: { id: order.id, total: order.total } });
        }
        return { cursor: orders.lastCursor };
      },
    },
  },

  consumers: {
    writeInvoice: Keep.consumer({
      subscribe: ["order.placed"],
      publishes: ["invoice.written"],

      async prepare(ctx, state) {
        const [event] = await ctx.peek("order.placed");
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "order.placed", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Invoice for order ${event.payload.id}` },
        };
      },

      async mutate(ctx, prepared) {
        const { id, total } = prepared.data;
        // The key makes the row unique, so that Keep can look for it when an answer is lost.
        await ctx.books.insert({ table: "invoices", key: { order_id: id }, values: { total } });
      },

      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status === "applied") {
          await ctx.publish("invoice.written", {
            messageId: String(prepared.data.id),
            payload: { invoice: mutationResult.result.key },
          });
        }
      },
    }),
  },
});
