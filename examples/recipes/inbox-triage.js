// Labels what comes into a mailbox: invoices, newsletters, and flags what is urgent. Needs [connectors.inbox].
const RULES = [
  [/invoice|receipt/i, "invoice"],
  [/newsletter|unsubscribe/i, "newsletter"],
  [/urgent|asap/i, "flagged"],
];

export default Keep.workflow({
  name: "inbox-triage",

  routines: {
    sort: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const mails = await ctx.inbox.search({ after: state?.cursor });
        for (const mail of mails) {
          const labels = RULES.filter(([words]) => words.test(`${mail.subject} ${mail.snippet}`)).map(([, label]) => label);
          if (labels.length === 0) continue;
          await ctx.withItem(mail.id, `“${mail.subject}”: ${labels.join(", ")}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.inbox.label({ id: mail.id, add: labels });
          });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
});
