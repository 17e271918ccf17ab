// Answers each sender once, however many e-mails they send. Needs [connectors.mail].
export default Keep.workflow({
  name: "out-of-office",

  routines: {
    answer: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.mail.search({ after: state?.cursor });
        for (const mail of mails) {
          // The sender is the item, so a second e-mail finds an item that is done.
          await ctx.withItem(mail.from, `Answer ${mail.from}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.mail.send({
              to: mail.from,
              subject: `Re: ${mail.subject}`,
              body: "I am away until the 12th. For anything urgent write to desk@example.com.",
              inReplyTo: mail.id,
            });
          });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
});
