// Reminds of each unpaid invoice once, on the day after it was due. Needs [connectors.shop] and [connectors.mail].
export default Keep.workflow({
  name: "payment-reminders",

  routines: {
    remind: {
      schedule: { cron: "0 9 * * *", tz: "Europe/Berlin" },
      handler: async (ctx) => {
        const today = new Date().toISOString().slice(0, 10);
        const late = await ctx.shop.query({ table: "invoices", where: { paid: 0, due: { "<": today } }, order: ["id"] });
        for (const invoice of late) {
          await ctx.withItem(String(invoice.id), `Remind of invoice ${invoice.id}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.mail.send({
              to: invoice.email,
              subject: `Invoice ${invoice.id}`,
              body: `Your invoice ${invoice.id} of ${invoice.total} was due on ${invoice.due}.`,
            });
          });
        }
      },
    },
  },
});
