/// <reference path="./keep.d.ts" />

// Files every e-mail with "invoice" in its subject into a sheet.
export default Keep.workflow({
  name: "invoices",

  topics: { "mail.received": {} },

  producers: {
    // Looks for new e-mails, registers each as an input, and publishes an event for it.
    poll: {
      publishes: ["mail.received"],
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.gmail.search({ query: "subject:invoice", after: state?.cursor });
        for (const mail of mails) {
          const inputId = ctx.registerInput({
            source: "gmail", type: "email", id: mail.id, title: `Mail: ${mail.subject}`,
          });
          await ctx.publish("mail.received", {
            messageId: mail.id, inputId, payload: { from: mail.from, subject: mail.subject },
          });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },

  consumers: {
    // Takes one event at a time: prepare chooses it, mutate makes the one call.
    file: Keep.consumer({
      subscribe: ["mail.received"],
      publishes: [],

      async prepare(ctx) {
        const [event] = await ctx.peek("mail.received", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "mail.received", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Add a row for ${event.payload.from}` },
        };
      },

      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({
          spreadsheetId: "invoices",
          values: [prepared.data.from, prepared.data.subject],
        });
      },
    }),
  },
});
