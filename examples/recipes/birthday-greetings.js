// Greets each person of a sheet on their birthday, once a year. The sheet "birthdays" has name, address and a date
// such as 1990-01-05. Needs [connectors.sheets] and [connectors.mail].
export default Keep.workflow({
  name: "birthday-greetings",

  routines: {
    greet: {
      schedule: { cron: "0 8 * * *", tz: "Europe/Berlin" },
      handler: async (ctx) => {
        const today = new Date().toISOString().slice(0, 10);
        for (const { values: [name, address, born] } of await ctx.sheets.getRows({ spreadsheetId: "birthdays" })) {
          if (born.slice(5) !== today.slice(5)) continue;
          // The year is part of what this item is: next year it is another one.
          await ctx.withItem(`${address} ${today.slice(0, 4)}`, `Greet ${name}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.mail.send({ to: address, subject: "Happy birthday!", body: `Dear ${name}, all the best.` });
          });
        }
      },
    },
  },
});
