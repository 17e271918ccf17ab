// Books the meeting that an e-mail asks for, answers, and files the e-mail. Needs [connectors.gmail] and [connectors.calendar].
export default Keep.workflow({
  name: "mail-to-calendar",

  routines: {
    bookMeetings: {
      schedule: { interval: "10m" },
      handler: async (ctx) => {
        // A subject such as "Meeting 2026-01-06T09:00:00Z"
        const emails = await ctx.gmail.search({ query: "subject:Meeting label:INBOX" });
        for (const email of emails) {
          await ctx.withItem(email.id, `Meeting asked for by ${email.from}`, async (ctx) => {
            if (ctx.item.isDone) return;

            const start = email.subject.split(" ").pop();
            await ctx.calendar.create({
              title: `With ${email.from}`,
              start,
              end: start.replace(":00:00Z", ":30:00Z"),
            });
            await ctx.gmail.reply({ id: email.id, to: email.from, body: `It is in the calendar, for ${start}.` });
            await ctx.gmail.label({ id: email.id, add: ["Done"], remove: ["INBOX"] });
          });
        }
      },
    },
  },
});
