export default Keep.workflow({
  name: "routine-invoices",

  routines: {
    fileInvoices: {
      schedule: { interval: "15m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ query: "subject:invoice", after: state?.cursor });
        for (const mail of mails) {
          await ctx.withItem(mail.id, `Invoice from ${mail.from}: "${mail.subject}"`, async (ctx) => {
            if (ctx.item.isDone) return;

            const row = await ctx.sheets.appendRow({
              spreadsheetId: "invoices",
              values: [mail.date, mail.from, mail.subject],
            });
            await ctx.gmail.send({
              to: mail.from,
              subject: `Re: ${mail.subject}`,
              body: `Thank you. Your invoice has the number ${row.rowId}.`,
              inReplyTo: mail.id,
            });
          });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
});
