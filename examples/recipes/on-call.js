// Writes to who is on call when an alert comes in, and to the next one if nobody has answered in time. Needs
// [connectors.alerts] and [connectors.mail].
const MINUTE_MS = 60_000;
const FORGOTTEN_MS = 48 * 60 * MINUTE_MS; // its name may come again then, for another alert
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
        // Alert → when it came in, and whether somebody has answered it.
        const alerts = { ...state?.alerts };
        for (const { receivedAt: at, body: { alert, status, text } } of news) {
          if (status !== "firing") alerts[alert] = { at, answered: true };
          else alerts[alert] ??= { at, text };
        }
        for (const [alert, { at, text, answered }] of Object.entries(alerts)) {
          const waited = Date.now() - Date.parse(at);
          if (waited > FORGOTTEN_MS) delete alerts[alert];
          if (answered) continue;
          for (const { to, after } of CHAIN.filter(({ after }) => after * MINUTE_MS <= waited)) {
            await ctx.withItem(`${alert} ${at} ${to}`, `Alert ${alert} to ${to}`, async (ctx) => {
              if (ctx.item.isDone) return;
              const body = `It came in at ${at}, and nobody has answered it.`;
              await ctx.mail.send({ to, subject: `Alert: ${text}`, body });
            });
          }
        }
        return { cursor: news.lastCursor, alerts };
      },
    },
  },
});
