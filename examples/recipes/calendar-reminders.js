// Reminds by e-mail of every appointment that begins within a day. Needs [connectors.calendar] and [connectors.mail].
export default Keep.workflow({
  name: "calendar-reminders",

  routines: {
    remind: {
      schedule: { interval: "15m" },
      handler: async (ctx) => {
        const [start, end] = [0, 24 * 3_600_000].map((later) => new Date(Date.now() + later).toISOString());
        for (const event of await ctx.calendar.list({ start, end })) {
          if (event.status === "cancelled") continue;
          // The time is part of what this item is: an appointment that is moved is reminded of again.
          await ctx.withItem(`${event.id} ${event.start}`, `Remind of ${event.title}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.mail.send({
              to: "me@example.com",
              subject: `Soon: ${event.title}`,
              body: `${event.start}\n${event.location}\n${event.link}`,
            });
          });
        }
      },
    },
  },
});
