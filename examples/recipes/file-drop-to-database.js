// Inserts each line of a CSV file that is dropped into inbox/ as a row of a database, then moves the file to done/.
// A line is: id, day, customer, total. Needs [connectors.drive] and [connectors.shop].
export default Keep.workflow({
  name: "file-drop-to-database",

  routines: {
    load: {
      schedule: { interval: "5m" },
      handler: async (ctx) => {
        for (const { path, type } of await ctx.drive.list({ folder: "inbox" })) {
          const file = type === "file" ? await ctx.drive.read({ path }) : null;
          if (!file) continue;
          const name = path.slice("inbox/".length);
          // The same name may come again with other content: the hash is part of what this item is.
          await ctx.withItem(`${name}@${file.hash}`, `Load ${name}`, async (ctx) => {
            if (ctx.item.isDone) return;
            for (const line of file.content.split("\n").filter((line) => line.trim())) {
              const [id, day, customer, total] = line.split(",").map((cell) => cell.trim());
              await ctx.shop.insert({ table: "sales", key: { id }, values: { day, customer, total: Number(total) } });
            }
            await ctx.drive.move({ from: path, to: `done/${file.hash.slice(7, 19)}-${name}`, ifHash: file.hash });
          });
        }
      },
    },
  },
});
