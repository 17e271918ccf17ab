// Welcomes each new customer by e-mail, then tells the team. Needs [connectors.shop], [connectors.mail], [connectors.slack].
export default Keep.workflow({
  name: "welcome-customers",

  routines: {
    welcome: {
      schedule: { interval: "10m" },
      handler: async (ctx, state) => {
        const customers = await ctx.shop.query({ table: "customers", order: ["id"], after: state?.cursor });
        for (const { id, name, email } of customers) {
          await ctx.withItem(String(id), `Welcome ${name}`, async (ctx) => {
            if (ctx.item.isDone) return;
            // If Keep is killed between the two, it goes on with the second.
            await ctx.mail.send({ to: email, subject: "Welcome", body: `Dear ${name}, it is good to have you.` });
            await ctx.slack.post({ channel: "#sales", text: `New customer: ${name}` });
          });
        }
        return { cursor: customers.lastCursor };
      },
    },
  },
});
