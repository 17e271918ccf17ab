// Opens a ticket for every form that a web site sends, and tells the sender its number. Needs [connectors.forms],
// [connectors.sheets] and [connectors.mail].
export default Keep.workflow({
  name: "form-to-ticket",

  routines: {
    open: {
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const forms = await ctx.forms.list({ after: state?.cursor });
        for (const form of forms) {
          const { email, subject, message } = form.body;
          await ctx.withItem(form.id, `Ticket of ${email}: ${subject}`, async (ctx) => {
            if (ctx.item.isDone) return;
            const values = [form.receivedAt, email, subject, message, "open"];
            const ticket = await ctx.sheets.appendRow({ spreadsheetId: "tickets", values });
            await ctx.mail.send({
              to: email,
              subject: `Your ticket: ${subject}`,
              body: `Thank you. Your ticket has the number ${ticket.rowId}. We answer within a day.`,
            });
          });
        }
        return { cursor: forms.lastCursor };
      },
    },
  },
});
