"""Scripts to check: a clean one with slots, the two examples, and the connectors they know."""

from __future__ import annotations

from pathlib import Path

from keepai.model.operations import Kind, Params, Surface

EXAMPLES = Path(__file__).parents[3] / "examples"

SURFACE = Surface(
    operations={
        "gmail": {"search": Kind.READ, "get": Kind.READ_BY_ID, "send": Kind.MUTATION},
        "sheets": {"appendRow": Kind.MUTATION, "getRows": Kind.READ, "getRow": Kind.READ_BY_ID},
        "crm": {"find": Kind.READ, "add": Kind.MUTATION, "log": Kind.MUTATION},
    },
    input_types={"gmail": ("email", "thread"), "sheets": ("row",), "system": ("schedule", "random")},
    params={
        "crm.find": Params({
            "type": "object", "properties": {
                "table": {"type": "string", "enum": ["people", "firms"]},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "where": {"type": "object", "additionalProperties": True},
            }, "required": ["table"],
        }),
        "crm.add": Params({
            "$defs": {"Name": {"type": "object", "properties": {"first": {"type": "string"}}, "required": ["first"]}},
            "type": "object", "properties": {
                "key": {"type": "string"}, "name": {"$ref": "#/$defs/Name"},
                "tags": {"type": "array", "items": {"type": "string"}}, "vip": {"type": "boolean"},
            }, "required": ["key"],
        }, identity=("key",)),
        "crm.log": Params({}, more=True),
    },
)

CLEAN = """\
// MODULE
export default Keep.workflow({
  name: "demo",
  topics: { "mail.in": {}, "row.out": {} },
  producers: {
    poll: {
      publishes: ["mail.in"],
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        // PRODUCER
        return state;
      },
    },
  },
  consumers: {
    work: Keep.consumer({
      subscribe: ["mail.in"],
      publishes: ["row.out"],
      async prepare(ctx, state) {
        // PREPARE
        return { reservations: [], data: {} };
      },
      async mutate(ctx, prepared) {
        // MUTATE
      },
      async next(ctx, prepared, mutationResult) {
        // NEXT
      },
    }),
    // CONSUMERS
  },
  routines: { sweep: { schedule: { interval: "1h" }, handler: async (ctx, state) => {
    // ROUTINE
  } } },
});
"""


def marked(text: str) -> tuple[str, tuple[int, int] | None]:
    """The text without its mark `§`, and the line and column that the mark stood at."""
    if "§" not in text:
        return text, None
    before = text[: text.index("§")]
    return text.replace("§", "", 1), (before.count("\n") + 1, len(before) - before.rfind("\n"))


def example(name: str) -> str:
    """One of the repository's examples."""
    return (EXAMPLES / name).read_text(encoding="utf-8")
