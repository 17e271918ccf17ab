// Adds a row for every form that a web site sends as a webhook. Needs [connectors.forms] and [connectors.sheets].
export default Keep.workflow({
  name: "form-to-sheet",

  routines: {
    file: {
      schedule: { interval: "1m" },
      handler: async (ctx, state) => {
        const forms = await ctx.forms.list({ after: state?.cursor });
        for (const form of forms) {
          const { name, email, message } = form.body;
          await ctx.withItem(form.id, `Form of ${name}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.sheets.appendRow({ spreadsheetId: "forms", values: [form.receivedAt, name, email, message] });
          });
        }
        return { cursor: forms.lastCursor };
      },
    },
  },
});
