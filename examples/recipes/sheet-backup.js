// Writes a sheet into a file each night, one file per day. Needs [connectors.sheets] and [connectors.drive].
export default Keep.workflow({
  name: "sheet-backup",

  routines: {
    save: {
      schedule: { cron: "30 2 * * *", tz: "Europe/Berlin" },
      handler: async (ctx) => {
        const day = new Date().toISOString().slice(0, 10);
        await ctx.withItem(day, `Backup of ${day}`, async (ctx) => {
          if (ctx.item.isDone) return;
          const rows = await ctx.sheets.getRows({ spreadsheetId: "orders", limit: 1000 });
          const lines = rows.map((row) => JSON.stringify(row.values));
          await ctx.drive.write({ path: `backup/orders-${day}.jsonl`, content: `${lines.join("\n")}\n` });
        });
      },
    },
  },
});
