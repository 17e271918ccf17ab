// Posts every paid order of one HTTP service to another. Needs [connectors.shop] and [connectors.books] of type "http".
export default Keep.workflow({
  name: "orders-to-books",

  routines: {
    book: {
      schedule: { interval: "10m" },
      handler: async (ctx) => {
        const orders = await ctx.shop.list({
          url: "https://shop.example.com/v1/orders",
          query: { status: "paid" },
          items: "data",
        });
        for (const order of orders) {
          await ctx.withItem(order.id, `Order ${order.id} of ${order.customer}`, async (ctx) => {
            if (ctx.item.isDone) return;

            await ctx.books.post({
              url: "https://books.example.com/v1/entries",
              body: { order: order.id, amount: order.total },
            });
          });
        }
      },
    },
  },
});
