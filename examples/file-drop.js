// Files what is dropped into inbox/: writes a line into the journal, then moves the file, each once. Needs [connectors.drive].
export default Keep.workflow({
  name: "file-drop",

  routines: {
    sort: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        for (const file of await ctx.drive.list({ folder: "inbox" })) {
          if (file.type !== "file") continue;
          const name = file.path.slice("inbox/".length);
          const found = await ctx.drive.read({ path: file.path });
          if (!found) continue;
          // The same name may come again with other content: the hash is part of what this item is.
          await ctx.withItem(`${name}@${found.hash}`, `File ${name}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.drive.append({ path: "journal.txt", content: `${file.modified} ${name} ${found.size}\n` });
            await ctx.drive.move({ from: file.path, to: `done/${found.hash.slice(7, 19)}-${name}`, ifHash: found.hash });
          });
        }
      },
    },
  },
});
