// Sends the sales of the day before as one e-mail each morning. Needs [connectors.shop] and [connectors.mail].
export default Keep.workflow({
  name: "daily-report",

  routines: {
    report: {
      schedule: { cron: "0 7 * * *", tz: "Europe/Berlin" },
      handler: async (ctx) => {
        const day = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
        await ctx.withItem(day, `Report of ${day}`, async (ctx) => {
          if (ctx.item.isDone) return;
          const sales = await ctx.shop.query({ table: "sales", where: { day }, order: ["-total"], limit: 1000 });
          const sum = sales.reduce((sum, { total }) => sum + total, 0);
          const lines = sales.map(({ id, customer, total }) => `${id}  ${customer}  ${total}`);
          await ctx.mail.send({
            to: "team@example.com",
            subject: `${day}: ${sales.length} sales, ${sum}`,
            body: lines.join("\n") || "Nothing was sold.",
          });
        });
      },
    },
  },
});
