// Keeps two sheets the same, by the key in their first column, and asks a person where both have changed. Needs
// [connectors.sheets], and [connectors.conflicts], which is the same; keep.toml says that it asks.
const SIDES = ["left", "right"];

export default Keep.workflow({
  name: "two-way-sync",

  routines: {
    sync: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        // Key → the value that both sides had last, and how often it has changed since.
        const known = { ...state };
        const rows = { left: {}, right: {} };
        for (const side of SIDES) {
          const found = await ctx.sheets.getRows({ spreadsheetId: side, limit: 1000 });
          for (const { rowId, values: [key, value] } of found) rows[side][key] ??= { rowId, value };
        }

        const conflicts = [];
        for (const key of Object.keys({ ...rows.left, ...rows.right }).sort()) {
          const [left, right, was] = [rows.left[key]?.value, rows.right[key]?.value, known[key]];
          if (left === right) {
            if (was?.value !== left) known[key] = { value: left, changes: (was?.changes ?? 0) + 1 };
          } else if (was && (left === undefined || right === undefined)) {
            continue; // A row that was taken out on one side is left alone on the other.
          } else if (left !== undefined && right !== undefined && left !== was?.value && right !== was?.value) {
            conflicts.push(key);
          } else {
            const [from, to] = right === undefined || (left !== undefined && left !== was?.value) ? SIDES : ["right", "left"];
            const { value } = rows[from][key];
            const changes = (was?.changes ?? 0) + 1;
            await ctx.withItem(`${key} ${changes} ${to}: ${value}`, `${to}: ${key} becomes “${value}”`, async (ctx) => {
              if (ctx.item.isDone) return;
              const row = rows[to][key];
              if (row) await ctx.sheets.updateRow({ spreadsheetId: to, rowId: row.rowId, values: [key, value] });
              else await ctx.sheets.appendRow({ spreadsheetId: to, values: [key, value] });
              known[key] = { value, changes };
            });
          }
        }

        // Last, because the routine waits here for the person.
        for (const key of conflicts) {
          const [left, right] = [rows.left[key].value, rows.right[key].value];
          const changes = (known[key]?.changes ?? 0) + 1;
          const title = `${key}: “${left}” on the left, “${right}” on the right. Shall the left one win?`;
          await ctx.withItem(`${key} ${changes} conflict: ${left} | ${right}`, title, async (ctx) => {
            if (ctx.item.isDone) return;
            const { rowId } = rows.right[key];
            await ctx.conflicts.updateRow({ spreadsheetId: "right", rowId, values: [key, left] });
            known[key] = { value: left, changes };
          });
        }
        return known;
      },
    },
  },
});
