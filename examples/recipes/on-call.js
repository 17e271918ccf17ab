// Writes to who is on call when an alert comes in, and to the next one if nobody has answered in time. Needs
// [connectors.alerts] and [connectors.mail].
const MINUTE_MS = 60_000;
const CHAIN = [
  { to: "first@example.com", after: 0 },
  { to: "second@example.com", after: 15 },
  { to: "head@example.com", after: 45 },
];

export default Keep.workflow({
  name: "on-call",

  routines: {
    escalate: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const news = await ctx.alerts.list({ after: state?.cursor });
        // Alert → when it came in, or null once somebody has answered it.
        const alerts = { ...state?.alerts };
        for (const { receivedAt, body: { alert, status, text } } of news) {
          if (status !== "firing") alerts[alert] = null;
          else if (alerts[alert] === undefined) alerts[alert] = { text, at: receivedAt };
        }
        for (const [alert, open] of Object.entries(alerts)) {
          if (open === null) continue;
          const waited = Date.now() - Date.parse(open.at);
          for (const { to, after } of CHAIN.filter(({ after }) => after * MINUTE_MS <= waited)) {
            await ctx.withItem(`${alert} ${to}`, `Alert ${alert} to ${to}`, async (ctx) => {
              if (ctx.item.isDone) return;
              const body = `It came in at ${open.at}, and nobody has answered it.`;
              await ctx.mail.send({ to, subject: `Alert: ${open.text}`, body });
            });
          }
        }
        return { cursor: news.lastCursor, alerts };
      },
    },
  },
});
