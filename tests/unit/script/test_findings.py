"""Each finding: a script that has only it, at the marked place, and the corrected script."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from keepai.script.check import check
from keepai.script.findings import CODES
from tests.unit.script.samples import CLEAN, SURFACE, marked

REGISTER = 'const inputId = ctx.registerInput({ source: "gmail", type: "email", id: "1", title: "t" });'
EVENT = '{ messageId: "1", inputId, payload: {} }'
PUBLISH = f'{REGISTER} ctx.publish("mail.in", {EVENT});'
SEND = 'await ctx.gmail.send({ to: "x" });'
NOTHING = "return { reservations: [], data: {} };"
OTHER = 'Keep.consumer({ subscribe: ["row.out"], publishes: [], async prepare(ctx) { ' + NOTHING + " } }),"
POLL = CLEAN[CLEAN.index("poll: {") : CLEAN.index("  },\n  consumers")]
WORK = CLEAN[CLEAN.index("work: Keep") : CLEAN.index("    // CONSUMERS")]
SWEEP = CLEAN[CLEAN.index("{ schedule") : CLEAN.index(" },\n});")]
ROUTINES = CLEAN[CLEAN.index("routines: {") : CLEAN.index("\n});")]


@dataclass(frozen=True)
class Case:
    """`old` is replaced by `bad`, where `§` marks the place of the finding, or by `good`."""

    code: str
    old: str
    bad: str
    good: str | None = None
    says: str = ""  # stands in the message or the fix


def module(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// MODULE", bad, good, says)


def producer(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// PRODUCER", bad, good, says)


def prepare(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// PREPARE", bad, good, says)


def mutate(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// MUTATE", bad, good, says)


def then(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// NEXT", bad, good, says)


def consumers(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// CONSUMERS", bad, good, says)


def routine(code: str, bad: str, good: str | None = None, says: str = "") -> Case:
    return Case(code, "// ROUTINE", bad, good, says)


TEXT = [
    module("syntax", "const x = [1, 2§);", "const x = [1, 2];", "does not close the `[` of 1:11"),
    module("syntax", "const f = §{ a: 1;\nconst y = 2;", "const f = { a: 1 };\nconst y = 2;", "never closed"),
    module("syntax", "const x = 1; §}", "const x = 1;", "closes nothing"),
    module("syntax", "const y = { a: 1 §b: 2 };", "const y = { a: 1, b: 2 };"),
    module("syntax", 'const é = "ü"; const y = { a: 1 §b: 2 };', 'const é = "ü"; const y = { a: 1, b: 2 };'),
    module("syntax", "const z = §<div/>;", "const z = 1;", "JSX"),
    module(
        "await-outside-async",
        "function f(ctx) { §await ctx.gmail.search(); }",
        "async function f(ctx) { await ctx.gmail.search(); }",
        "`async`",
    ),
    module("import", 'const a = 1;\n§import fs from "fs";', "const a = 1;"),
    producer("import", 'const fs = §require("fs");', "const require = () => 1; require(1);"),
    producer("import", 'await §import("fs");'),
    module("extra-export", "§export const A = 1;", "const A = 1;"),
    Case("no-workflow", CLEAN, "§const a = 1;", CLEAN),
    Case("no-workflow", CLEAN, "export default §{ name: 1 };", CLEAN, "Keep.workflow({"),
    Case("no-workflow", "export default Keep", "const Keep = {};\nexport default §Keep", "export default Keep"),
]

STATE = [
    *(
        Case(
            "shared-state",
            CLEAN,
            f"{declared}\n" + CLEAN.replace("// PRODUCER", f"§{change}"),
            f"{declared}\n" + CLEAN.replace("// PRODUCER", fine),
        )
        for declared, change, fine in [
            ("let n = 0;", "n++;", "const m = n + 1;"),
            ("let n = 0;", "n = 1;", "let n = 0; n = 1;"),
            ("var n = 0;", "n += 1;", "const m = n;"),
            ("const c = new Map();", "c.set(1, 2);", "c.get(1);"),
            ("const c = new Set();", "c.add(1);", "c.has(1);"),
            ("const c = [];", "c.push(1);", "c.slice();"),
            ("const c = {};", "c.a = 1;", "const d = { ...c, a: 1 };"),
            ("const c = {};", "c.a.b[0] = 1;", "const d = c.a;"),
            ("const c = {};", "delete c.a;", "const d = c.a;"),
            ("const c = { list: [] };", "c.list.push(1);", "[...c.list].push(1);"),
            ("const c = {};", "Object.assign(c, { a: 1 });", "Object.assign({}, c);"),
            ("const c = { add(x) { return x; } };", "globalThis.x = 1;", "c.add(1);"),
        ]
    ),
    Case(
        "shared-state",
        CLEAN,
        "let n = 0;\nfunction bump() { §n++; }\n" + CLEAN.replace("// PRODUCER", "bump();"),
        "let n = 0;\nfunction bump() { n++; }\nbump();\n" + CLEAN,
    ),
]

SHAPE = [
    Case("not-literal", 'name: "demo"', "name: §`demo${Math.random()}`", "name: `demo`"),
    Case("not-literal", "topics: {", "topics: { §...other(),", "topics: {"),
    Case("not-literal", 'publishes: ["mail.in"]', "publishes: §list()", 'publishes: ["mail.in"]'),
    Case("not-literal", 'publishes: ["mail.in"]', "publishes: [§topic()]", 'publishes: ["mail" + ".in"]'),
    Case("not-literal", POLL, "poll: §make(),", POLL),
    Case("wrong-type", 'name: "demo"', "name: §7", says='name: "'),
    Case(
        "wrong-type",
        '{ "mail.in": {}, "row.out": {} }',
        '§["mail.in", "row.out"]',
        says='"email.received": {}',
    ),
    Case("wrong-type", '"mail.in": {}', '"mail.in": §true'),
    Case("wrong-type", 'subscribe: ["mail.in"]', 'subscribe: §"mail.in"', says="subscribe: ["),
    Case("wrong-type", 'publishes: ["mail.in"]', "publishes: [§1]"),
    Case("wrong-type", 'schedule: { interval: "5m" }', 'schedule: §"5m"', says='{ interval: "5m" }'),
    Case("wrong-type", 'interval: "5m"', "interval: §5"),
    Case("wrong-type", POLL, "poll: §7,", POLL),
    Case("wrong-type", WORK, "work: §{ subscribe: [] },", WORK, "Keep.consumer"),
    Case("wrong-type", WORK, WORK.replace("Keep.consumer({", "§Keep.consumer({}, {"), WORK, "must be one"),
    Case("wrong-type", WORK, "work: §Keep.consumer(),", WORK, "must be one"),
    Case("wrong-type", POLL, "poll: { publishes: ['mail.in'], schedule: { interval: '1s' }, handler: §{} },", POLL),
    Case("missing-key", '  name: "demo",\n', "", says="`name`"),
    Case("missing-key", '  topics: { "mail.in": {}, "row.out": {} },\n', "", says="`topics`"),
    Case("missing-key", 'poll: {\n      publishes: ["mail.in"],', "§poll: {", says='publishes: ["'),
    Case("missing-key", POLL, '§poll: { publishes: ["mail.in"], schedule: { interval: "5m" } },', POLL, "`handler`"),
    Case(
        "missing-key",
        'work: Keep.consumer({\n      subscribe: ["mail.in"],',
        "§work: Keep.consumer({",
        says="`subscribe`",
    ),
    Case(
        "missing-key",
        WORK,
        '§work: Keep.consumer({ subscribe: ["mail.in"], publishes: [] }),',
        WORK,
        "`prepare`",
    ),
    Case("unknown-key", 'name: "demo"', 'name: "demo", §topic: {}', says='Did you mean "topics"?'),
    Case(
        "unknown-key",
        'publishes: ["mail.in"],',
        'publishes: ["mail.in"], §shedule: 1,',
        says='Did you mean "schedule"?',
    ),
    Case("unknown-key", 'subscribe: ["mail.in"],', 'subscribe: ["mail.in"], §mutat() {},', says='"mutate"'),
    Case("unknown-key", 'interval: "5m"', 'interval: "5m", §zzz: 1', says='"interval", "cron", "tz"'),
    Case("duplicate-key", 'name: "demo"', 'name: "demo", §name: "demo"'),
    Case("duplicate-key", '"mail.in": {},', '"mail.in": {}, §"mail.in": {},'),
    Case("bad-name", 'name: "demo"', 'name: §" "'),
    Case("bad-name", 'name: "demo"', r'name: §"a\0b"'),
    Case("bad-name", "poll: {", "§__proto__: {", "poll: {"),
    Case("empty-subscribe", 'subscribe: ["mail.in"]', "subscribe: §[]"),
    Case("schedule-choice", '{ interval: "5m" }', '§{ interval: "5m", cron: "0 9 * * *" }'),
    Case("schedule-choice", '{ interval: "5m" }', "§{}", '{ cron: "0 9 * * *", tz: "Europe/Berlin" }'),
    Case("bad-duration", '"5m"', '§"5 minutes"', '"1h30m"', "is not a duration"),
    Case("bad-duration", '"5m"', '§"500ms"', '"1s"', "shortest"),
    Case("bad-cron", 'interval: "5m"', 'cron: §"61 * * * *"', 'cron: "59 * * * *"'),
    Case("bad-cron", 'interval: "5m"', 'cron: §"0 0 30 2 *"', 'cron: "0 0 29 2 *"'),
    Case("bad-cron", 'interval: "5m"', 'cron: §"0 0 9 * * *"', 'cron: "0 9 * * *"', "five fields"),
    Case(
        "bad-time-zone",
        'interval: "5m"',
        'cron: "0 9 * * *", tz: §"Europe/Berln"',
        'cron: "0 9 * * *", tz: "Europe/Berlin"',
        'Did you mean "Europe/Berlin"?',
    ),
    Case("handler-name-twice", "// CONSUMERS", f"§poll: {OTHER}", f"other: {OTHER}"),
    Case("handler-name-twice", ROUTINES, f"routines: {{ §work: {SWEEP} }},", ROUTINES, "A consumer is also called"),
    Case("handler-name-twice", ROUTINES, f"routines: {{ §poll: {SWEEP} }},", ROUTINES, "A producer is also called"),
    Case("wrong-type", ROUTINES, "routines: §[],", ROUTINES, "routines: {"),
    Case("wrong-type", ROUTINES, "routines: { sweep: §7 },", ROUTINES, "sweep: { schedule"),
    Case("not-literal", ROUTINES, "routines: { sweep: §make() },", ROUTINES),
    Case("missing-key", ROUTINES, 'routines: { §sweep: { schedule: { interval: "5m" } } },', ROUTINES, "`handler`"),
    Case("unknown-key", SWEEP, SWEEP.replace("{ s", "{ §publishes: [], s", 1), says="do not publish"),
    Case("unknown-key", SWEEP, SWEEP.replace("{ s", "{ §subscribe: [], s", 1), says="do not publish"),
    Case("unknown-key", SWEEP, SWEEP.replace("{ s", "{ §handle: 1, s", 1), says='Did you mean "handler"?'),
    Case("bad-duration", SWEEP, SWEEP.replace('"1h"', '§"1 hour"')),
    Case("schedule-missing", ROUTINES, "routines: { §sweep: { handler: async (ctx) => {} } },", ROUTINES, '"5m"'),
    Case("bare-routine", ROUTINES, "routines: { §sweep: async (ctx) => {} },", ROUTINES, "sweep: { schedule: { int"),
    Case("no-handlers", CLEAN, 'export default Keep.workflow(§{ name: "a", topics: {} });', CLEAN),
    Case(
        "bare-producer",
        POLL,
        f"§poll: async (ctx) => {{ {PUBLISH} }},",
        POLL,
        'poll: { publishes: ["mail.in"], schedule: { interval: "5m" }, handler: async (ctx, state)',
    ),
    Case(
        "schedule-missing",
        'poll: {\n      publishes: ["mail.in"],\n      schedule: { interval: "5m" },',
        '§poll: {\n      publishes: ["mail.in"],',
        says='schedule: { interval: "5m" }',
    ),
    Case(
        "publishes-missing",
        'work: Keep.consumer({\n      subscribe: ["mail.in"],\n      publishes: ["row.out"],',
        '§work: Keep.consumer({\n      subscribe: ["mail.in"],',
        says="publishes: []",
    ),
    Case("time-zone-unused", 'interval: "5m"', 'interval: "5m", tz: §"UTC"', 'cron: "0 9 * * *", tz: "UTC"'),
]

TOPICS = [
    Case(
        "undeclared-topic",
        'publishes: ["mail.in"]',
        'publishes: [§"mail.im"]',
        says='Did you mean "mail.in"?',
    ),
    Case("undeclared-topic", 'subscribe: ["mail.in"]', 'subscribe: [§"zzzzz"]', says="to `topics`"),
    producer("undeclared-topic", f'{REGISTER} ctx.publish(§"mail.im", {EVENT});', PUBLISH),
    producer("undeclared-topic", f'{REGISTER} ctx.publish(["mail.in", §"mail.im"], {EVENT});', PUBLISH),
    prepare("undeclared-topic", 'await ctx.peek(§"mail.im");', 'await ctx.peek("mail.in");'),
    prepare("undeclared-topic", 'await ctx.getByIds(§"mail.im", []);', 'await ctx.getByIds("mail.in", []);'),
    producer("topic-not-in-publishes", f'{REGISTER} ctx.publish(§"row.out", {EVENT});', PUBLISH),
    then(
        "topic-not-in-publishes",
        'ctx.publish(["row.out", §"mail.in"], { messageId: "1", payload: {} });',
        'ctx.publish("row.out", { messageId: "1", payload: {} });',
    ),
    prepare("topic-not-subscribed", 'await ctx.peek(§"row.out");', 'await ctx.peek("mail.in", { limit: 5 });'),
    prepare("topic-not-subscribed", 'await ctx.getByIds(§"row.out", ["1"]);'),
    consumers(
        "two-subscribers",
        OTHER.replace("Keep", "other: Keep").replace('"row.out"', '§"mail.in"'),
        OTHER.replace("Keep", "other: Keep"),
        "`work` already subscribes",
    ),
    Case(
        "two-publishers",
        CLEAN,
        CLEAN.replace('{ "mail.in": {}, ', '{ x: {}, "mail.in": {}, ').replace(
            "// CONSUMERS",
            'other: Keep.consumer({ subscribe: ["x"], publishes: [§"row.out"], '
            f"async prepare(ctx) {{ {NOTHING} }}, async next() {{}} }}),",
        ),
        CLEAN,
        "`work` already publishes",
    ),
    Case(
        "topic-cycle",
        CLEAN,
        CLEAN.replace('["row.out"]', '[§"row.out"]')
        .replace(
            "// CONSUMERS",
            'other: Keep.consumer({ subscribe: ["row.out"], publishes: ["back"], '
            f"async prepare(ctx) {{ {NOTHING} }}, async next() {{}} }}),",
        )
        .replace('{ "mail.in"', '{ back: {}, "mail.in"')
        .replace('subscribe: ["mail.in"]', 'subscribe: ["mail.in", "back"]'),
        CLEAN,
        "work → row.out → other → back → work",
    ),
]

CALLS = [
    producer("forbidden-call", "await §ctx.gmail.send({});", "await ctx.gmail.search({});", "mutate"),
    producer("forbidden-call", 'await §ctx.peek("mail.in");', says="prepare"),
    producer("forbidden-call", 'await §ctx.withItem("1", "t", async () => {});'),
    prepare("forbidden-call", "await §ctx.sheets.appendRow({});", "await ctx.sheets.getRows({});"),
    prepare("forbidden-call", '§ctx.publish("row.out", { messageId: "1", payload: {} });', says="`next`"),
    prepare("forbidden-call", "§ctx.registerInput({});", says="producer"),
    mutate("forbidden-call", "await §ctx.sheets.getRow({ id: 1 });", says="`prepare`"),
    mutate("forbidden-call", 'await §ctx.peek("mail.in");'),
    then("forbidden-call", "await §ctx.gmail.search({});", says="`data`"),
    then("forbidden-call", "await §ctx.gmail.send({});"),
    producer("unknown-connector", "await §ctx.gmial.search({});", "await ctx.gmail.search({});", '"gmail"'),
    producer("unknown-operation", "await §ctx.gmail.serch({});", "await ctx.gmail.search({});", '"search"'),
    producer("unknown-operation", "await §ctx.publsh();", says='"publish"'),
    producer("unknown-operation", "await §ctx.gmail();", says='"gmail"'),
    producer("unknown-operation", "§ctx();", "ctx.log(1); ctx.log.info(2);"),
    producer("unknown-source", REGISTER.replace('"gmail"', '§"gmial"'), REGISTER, 'Did you mean "gmail"?'),
    producer("unknown-input-type", REGISTER.replace('"email"', '§"emial"'), REGISTER, 'Did you mean "email"?'),
    producer(
        "unknown-input-type",
        REGISTER.replace('"gmail"', '"system"').replace('"email"', '§"hourly"'),
        REGISTER.replace('"gmail"', '"system"').replace('"email"', '"schedule"'),
    ),
    producer(
        "input-incomplete",
        'ctx.registerInput(§{ source: "gmail", type: "email", id: "1" });',
        REGISTER,
        "title",
    ),
    producer(
        "input-incomplete",
        'ctx.registerInput(§{ source: "gmail", type: "email", title: "1" });',
        'const rest = f(); ctx.registerInput({ source: "gmail", ...rest });',
        "`id`",
    ),
    producer(
        "input-id-missing",
        'ctx.publish("mail.in", §{ messageId: "1", payload: {} });',
        PUBLISH,
        "registerInput",
    ),
    producer(
        "input-by-title",
        'ctx.publish("mail.in", { messageId: "1", §title: "t", payload: {} });',
        PUBLISH,
        "const inputId = ctx.registerInput(",
    ),
    then("title-ignored", 'ctx.publish("row.out", { messageId: "1", §title: "t", payload: {} });'),
    producer("message-id-missing", f'{REGISTER} ctx.publish("mail.in", §{{ inputId, payload: {{}} }});', PUBLISH),
    producer(
        "unknown-field",
        f'{REGISTER} ctx.publish("mail.in", {{ messageId: 1, inputId, §paylod: {{}} }});',
        PUBLISH,
        '"payload"',
    ),
    Case("unknown-field", "data: {} }", "data: {}, §wakeat: 1 }", "data: {}, wakeAt: 'x' }", '"wakeAt"'),
    producer("capability-hidden", "await §ctx[state.name].search();", 'await ctx["gmail"].search();'),
    producer("capability-hidden", "const { §...rest } = ctx;", "const { gmail } = ctx; await gmail.search({});"),
    producer("capability-hidden", "state.helper(§ctx);", "const f = async (c) => c.gmail.search(); await f(ctx);"),
    producer("capability-hidden", "const o = { §ctx };", "if (ctx.gmail) {}"),
    producer("capability-hidden", "[1].map(§ctx.gmail.get);", "[1].map((id) => ctx.gmail.get({ id }));"),
    producer("capability-hidden", "§ctx.gmail.get.call(null, 1);", "ctx.gmail.get({ id: 1 });"),
]

IF_ELSE = "if (prepared.data.a) { await ctx.gmail.send({}); } else { await ctx.sheets.appendRow({}); }"
SWITCH = (
    "switch (prepared.data.a) { case 1: await ctx.gmail.send({}); break; default: await ctx.sheets.appendRow({}); }"
)

MUTATIONS = [
    mutate("after-mutation", f"{SEND} §console.log(1);", f"console.log(1); {SEND}"),
    mutate("after-mutation", f"{SEND} §return 5;", f"{SEND} return;"),
    mutate("after-mutation", f"{{ {SEND} }} §f();", f"{{ {SEND} }}"),
    mutate("after-mutation", f"{IF_ELSE} §f();", IF_ELSE),
    mutate("after-mutation", f"{SWITCH} §f();", SWITCH),
    mutate("after-mutation", f"if (a) {{ return; }} {SEND} §f();", f"if (a) {{ return; }} {SEND}"),
    mutate("after-mutation", f"if (a) {{ {SEND} §f(); }}", f"if (a) {{ f(); {SEND} }}"),
    Case(
        "after-mutation",
        CLEAN,
        "async function send(c) { await c.gmail.send({}); }\n" + CLEAN.replace("// MUTATE", "await send(ctx); §f();"),
        "async function send(c) { await c.gmail.send({}); }\n" + CLEAN.replace("// MUTATE", "await send(ctx);"),
    ),
    mutate("second-mutation", f"{SEND} await §ctx.sheets.appendRow({{}});", SEND),
    mutate(
        "second-mutation",
        "await Promise.all([ctx.gmail.send({}), §ctx.sheets.appendRow({})]);",
        "await (prepared.data.a ? ctx.gmail.send({}) : ctx.sheets.appendRow({}));",
    ),
    mutate(
        "mutation-in-loop",
        "for (const x of prepared.data) { await §ctx.gmail.send(x); }",
        f"for (const x of prepared.data) {{ if (x) {{ {SEND} return; }} }}",
    ),
    mutate("mutation-in-loop", "while (f()) await §ctx.gmail.send({});", f"while (f()) {{ {SEND} break; }}"),
    mutate(
        "mutation-in-loop",
        "prepared.data.map((x) => §ctx.gmail.send(x));",
        "const all = prepared.data.map((x) => x.id); await ctx.gmail.send({ all });",
    ),
    mutate("mutation-result-used", "const r = await §ctx.gmail.send({});", SEND),
    mutate("mutation-result-used", "await §ctx.gmail.send({}).then(() => 1);", "return ctx.gmail.send({});"),
    mutate("mutation-result-used", "console.log(await §ctx.gmail.send({}));", "void ctx.gmail.send({});"),
    mutate("mutation-result-used", "return (await §ctx.gmail.send({})).id;", "return await ctx.gmail.send({});"),
    mutate(
        "after-conditional-mutation",
        f"if (prepared.data.a) {{ {SEND} }} §f();",
        f"if (prepared.data.a) {{ {SEND} return; }} f();",
    ),
    mutate(
        "after-conditional-mutation",
        f"if (a) {{ {SEND} }} §await ctx.sheets.appendRow({{}});",
        f"if (a) {{ {SEND} return; }} await ctx.sheets.appendRow({{}});",
    ),
    mutate(
        "mutation-caught",
        "try { await §ctx.gmail.send({}); } catch (e) { f(e); }",
        f"try {{ f(); }} catch (e) {{ return; }} {SEND}",
    ),
    mutate("mutation-caught", "try { await §ctx.gmail.send({}); } finally { f(); }", SEND),
]

RESERVE = 'reservations: [{ topic: "mail.in", ids: ["1"] }], data: {}'
MUTATING = CLEAN.replace("// MUTATE", SEND)

PREPARE = [
    Case(
        "ui-title-missing",
        CLEAN,
        MUTATING.replace("// PREPARE", f"if (state) return §{{ {RESERVE} }};"),
        MUTATING.replace("// PREPARE", f"if (state) return {{ {RESERVE}, ui: {{ title: 't' }} }};"),
    ),
    Case(
        "ui-title-missing",
        CLEAN,
        MUTATING.replace("// PREPARE", f"if (state) return §{{ {RESERVE}, ui: {{}} }};"),
        CLEAN.replace("// PREPARE", f"if (state) return {{ {RESERVE} }};"),
    ),
    prepare("bad-prepare-result", "if (state) §return;", f"if (state) {NOTHING}"),
    prepare("bad-prepare-result", "if (state) return §null;", "if (state) return other();"),
    prepare(
        "bad-prepare-result",
        "if (state) return §{ data: {} };",
        "if (state) return { ...other(), data: {} };",
    ),
    prepare("bad-prepare-result", f"if (state) return state.x ? {NOTHING[7:-1]} : §null;", f"if (state) {NOTHING}"),
    prepare("bad-prepare-result", f"if (state) return state.x ? §null : {NOTHING[7:-1]};", f"if (state) {NOTHING}"),
    prepare("bad-prepare-result", f"if (state) return (state.x ? {NOTHING[7:-1]} : (state.y ? §7 : other()));",
            f"if (state) {NOTHING}"),
    prepare("bad-prepare-result", f"if (state) return {{ {RESERVE}, §events: [] }};",
            f"if (state) return {{ {RESERVE[:-1]} events: [] }} }};"),
    prepare(
        "reservation-not-subscribed",
        'if (state) return { reservations: [{ topic: §"row.out", ids: [] }], data: {} };',
        'if (state) return { reservations: [{ topic: "mail.in", ids: [] }], data: {} };',
    ),
]

ITEM = "if (ctx.item.isDone) return; await ctx.gmail.send({});"
ITEMS = [
    routine(
        "mutation-outside-item",
        "await §ctx.gmail.send({});",
        f'await ctx.withItem("1", "t", async (ctx) => {{ {ITEM} }});',
        "await ctx.withItem(id, title, async (ctx) => { if (ctx.item.isDone) return; … })",
    ),
    routine(
        "nested-item",
        'await ctx.withItem("1", "t", async (ctx) => { await §ctx.withItem("2", "u", async () => {}); });',
        'await ctx.withItem("1", "t", async () => {}); await ctx.withItem("2", "u", async () => {});',
    ),
    routine("item-incomplete", 'await §ctx.withItem("1", async () => {});', says="an id, a title and a function"),
    routine("item-incomplete", 'await ctx.withItem(§"", "t", async () => {});', says="no id"),
    routine("item-incomplete", 'await ctx.withItem("1", §"", async () => {});', says="no title"),
    routine("item-incomplete", 'await ctx.withItem("1", "t", §{});', says="a function, not an object"),
    routine(
        "item-outside",
        "if (§ctx.item.isDone) return;",
        'await ctx.withItem("1", "t", async (ctx) => { console.log(ctx.item.isDone); });',
        "only inside",
    ),
    producer("item-outside", "f(§ctx.item.isDone);", says="in a producer"),
    prepare("item-outside", "f(§ctx.item.isDone);", says="in a consumer"),
    routine(
        "item-not-awaited",
        '§ctx.withItem("1", "t", async () => {});',
        'await ctx.withItem("1", "t", async () => {});',
        "stops the run",
    ),
    routine(
        "done-not-checked",
        'await ctx.withItem("1", "t", async (ctx) => { await §ctx.gmail.send({}); });',
        f'await ctx.withItem("1", "t", async (ctx) => {{ {ITEM} }});',
        "Write `if (ctx.item.isDone) return;` as the first line of the callback.",
    ),
    routine(
        "forbidden-call",
        '§ctx.publish("mail.in", { messageId: "1", payload: {} });',
        "await ctx.gmail.search({});",
        "A routine does not publish; ",
    ),
]

GLOBALS = [
    producer("missing-global", '§fetch("https://a.example");', "const fetch = () => 1; fetch();", "http"),
    producer(
        "missing-global", "const key = §process.env.KEY;", "const process = { env: {} }; f(process.env);", "secrets"
    ),
    producer("missing-global", "const { env } = §process;", "f({ process: 1 }.process);"),
    producer("missing-global", "await new Promise((r) => §setTimeout(r, 10));", "await Promise.resolve();", "wakeAt"),
    producer("missing-global", 'f(§Buffer.from("a"));', 'f(new TextEncoder().encode("a"));', "TextEncoder"),
    producer("missing-global", "f(new §Intl.NumberFormat());", "f((1.5).toFixed(2));"),
    producer("missing-global", "f({ §process });", 'if (typeof process !== "undefined") f(process.env);'),
    producer("missing-global", "§globalThis.fetch(1);", "globalThis.fetch?.(1); f(globalThis.process);"),
    module("missing-global", "const at = §performance.now();", "const at = Date.now();", "Date.now()"),
]

FIND = 'await ctx.crm.find({ table: "people"'
PARAMS = [
    producer("param-missing", "await §ctx.crm.find();", FIND + " });", "`table`"),
    producer("param-missing", "await ctx.crm.find(§{ limit: 1 });", "await ctx.crm.find({ ...state, limit: 1 });"),
    producer("param-missing", "await ctx.crm.find(§{ table: undefined });", "await ctx.crm.find({ table: state.t });"),
    producer("param-unknown", FIND + ", §limt: 1 });", FIND + ", limit: 1 });", 'Did you mean "limit"?'),
    producer("param-unknown", "await ctx.crm.find({ ...state, §tabel: 1 });", "await ctx.crm.find({ ...state });"),
    producer("param-wrong", FIND + ', limit: §"5" });', FIND + ", limit: 5 });", 'a whole number or null, not "5"'),
    producer("param-wrong", FIND + ", limit: §1.5 });", FIND + ", limit: -1 });", "a whole number"),
    producer("param-wrong", FIND + ", limit: §[] });", FIND + ", limit: null });", "not an array"),
    producer("param-wrong", FIND + ", where: §1 });", FIND + ", where: { any: [1] } });", "an object"),
    producer("param-wrong", 'await ctx.crm.find({ table: §"persons" });', FIND + " });", 'one of "people", "firms"'),
    producer("param-wrong", 'await ctx.crm.find(§"people");', FIND + " });", "one object"),
    producer("param-wrong", "const limit = true; " + FIND + ", §limit });", "const limit = 2; " + FIND + ", limit });"),
    producer(
        "param-wrong", "await ctx.crm.find({ ...state, table: §1 });", "await ctx.crm.find({ table: 1, ...state });"
    ),
    mutate(
        "param-wrong",
        'await ctx.crm.add({ key: "1", tags: ["a", §2] });',
        'await ctx.crm.add({ key: "1", tags: ["a"] });',
        "`tags[1]` of `ctx.crm.add` must be a string, not a number",
    ),
    mutate(
        "param-missing",
        'await ctx.crm.add({ key: "1", name: §{} });',
        'await ctx.crm.add({ key: "1", subkey: "a" });',
        "`name.first`",
    ),
    mutate(
        "param-unknown",
        'await ctx.crm.add({ key: "1", name: { first: "a", §second: "b" } });',
        "await ctx.crm.log({ anything: 1 });",
        "`name` of `ctx.crm.add`",
    ),
]

LOAD = "async function load(c) { return await c.gmail.search({}); }\n"
PARAMS += [
    mutate(
        "param-wrong", 'await ctx.crm.add({ key: "1", subkey: §5 });', 'await ctx.crm.add({ key: "1", subkey: "5" });'
    ),
]
PROMISES = [
    Case(
        "promise-not-awaited",
        CLEAN[CLEAN.index("async prepare(") : CLEAN.index("      async mutate")],
        "prepare: async (ctx) => ({ reservations: [], data: [§ctx.gmail.search({})] }),\n",
        "prepare: async (ctx) => ({ reservations: [], data: [await ctx.gmail.search({})] }),\n",
    ),
    prepare(
        "promise-not-awaited",
        "if (state) return { reservations: [], data: { rows: state.all ? §ctx.gmail.search({}) : [] } };",
        "const p = state ? ctx.gmail.search({}) : null; if (p) f(await p); const q = p ?? []; if (!q) f(q.length);",
    ),
    prepare(
        "promise-not-awaited",
        'const p = ctx.peek("mail.in"); if (!§p.length) return other();',
        'const p = ctx.peek("mail.in"); if (!(await p).length) return other();',
        "`length`",
    ),
    prepare(
        "promise-not-awaited", 'const [event] = §ctx.peek("mail.in");', 'const [event] = await ctx.peek("mail.in");'
    ),
    prepare(
        "promise-not-awaited", 'const first = §ctx.peek("mail.in")[0];', 'ctx.peek("mail.in").then((all) => f(all[0]));'
    ),
    prepare(
        "promise-not-awaited",
        'for (const e of §ctx.peek("mail.in")) f(e);',
        'for (const e of await ctx.peek("mail.in")) f(e);',
    ),
    prepare(
        "promise-not-awaited", 'if (§ctx.gmail.get({ id: "1" })) f();', 'if (await ctx.gmail.get({ id: "1" })) f();'
    ),
    prepare(
        "promise-not-awaited",
        "const p = ctx.gmail.search({}); const q = p; f(`${§q}`);",
        "const p = ctx.gmail.search({}); const q = p; f(`${await q}`);",
    ),
    prepare("promise-not-awaited", "f([...§ctx.gmail.search({})]);", "f([...(await ctx.gmail.search({}))]);"),
    prepare("promise-not-awaited", "f(JSON.stringify(§ctx.gmail.search({})));", "f(ctx.gmail.search({}));"),
    prepare(
        "promise-not-awaited",
        "let p = ctx.gmail.search({}); f(§p.id);",
        "let p = ctx.gmail.search({}); p = await p; f(p.id);",
    ),
    prepare(
        "promise-not-awaited",
        "if (state) return { reservations: [], data: { rows: §ctx.gmail.search({}) } };",
        "if (state) return { reservations: [], data: { rows: await ctx.gmail.search({}) } };",
        "empty object",
    ),
    prepare(
        "promise-not-awaited",
        "const rows = ctx.gmail.search({}); if (state) return { reservations: [], data: { §rows } };",
        "const rows = ctx.gmail.search({}); const both = { rows }; await Promise.all(Object.values(both));",
    ),
    prepare(
        "promise-not-awaited",
        "if (state) return { reservations: [], data: §state.map(async (id) => ctx.gmail.get({ id })) };",
        "const all = state.map(async (id) => ctx.gmail.get({ id })); "
        "if (state) return { reservations: [], data: await Promise.all(all) };",
        "Promise.all",
    ),
    prepare(
        "promise-not-awaited",
        "await ctx.gmail.get({ id: §ctx.gmail.search({}) });",
        "await Promise.all([ctx.gmail.search({}), ctx.gmail.search({})]);",
    ),
    Case(
        "promise-not-awaited",
        CLEAN,
        LOAD + CLEAN.replace("// PRODUCER", "const all = load(ctx); f(§all.length);"),
        LOAD + CLEAN.replace("// PRODUCER", "const all = await load(ctx); f(all.length);"),
    ),
    Case(
        "promise-dropped",
        CLEAN,
        LOAD + CLEAN.replace("// PRODUCER", "§load(ctx);"),
        LOAD + CLEAN.replace("// PRODUCER", "await load(ctx);"),
    ),
    producer(
        "promise-dropped",
        "§state.forEach(async (id) => { f(await ctx.gmail.get({ id })); });",
        "for (const id of state) { f(await ctx.gmail.get({ id })); }",
        "for (const each of list)",
    ),
]

GET = 'await ctx.gmail.get({ id: "1" });'
CATCHES = [
    producer(
        "call-caught",
        f"try {{ {GET.replace('ctx', '§ctx')} }} catch (e) {{ f(e); }}",
        f"try {{ f(({GET[:-1]}).x); }} catch {{}}",
    ),
    producer(
        "call-caught",
        f"let m; try {{ m = {GET.replace('ctx', '§ctx')} }} catch {{ return; }}",
        f"try {{ {GET} }} finally {{ f(); }}",
    ),
    producer(
        "call-caught",
        'await §ctx.gmail.get({ id: "1" }).catch(() => null);',
        'await ctx.gmail.get({ id: "1" }).then(f);',
    ),
    producer(
        "retry-loop",
        f"for (let i = 0; i < 3; i++) {{ try {{ f({GET[:-1].replace('ctx', '§ctx')}); break; }} "
        "catch (e) { f(e); } }",
        f"while (state) {{ try {{ f({GET[:-1]}); }} catch {{ break; }} }}",
    ),
    producer(
        "retry-loop",
        f"while (true) {{ try {{ {GET.replace('ctx', '§ctx')} return; }} catch (e) {{ if (state) throw e; }} }}",
        f"for (const id of state) {{ try {{ f({GET[:-1]}); }} catch (e) {{ f(e); }} }}",
    ),
]


def in_item(work: str) -> str:
    return f"await ctx.withItem('1', 't', async (ctx) => {{ if (ctx.item.isDone) return; {work} }});"


VOLATILE = [
    producer("volatile-id", PUBLISH.replace('messageId: "1"', "messageId: §`m-${Date.now()}`"), PUBLISH, "Date.now()"),
    producer(
        "volatile-id",
        "const now = new Date(); " + PUBLISH.replace('messageId: "1"', "messageId: §now.toISOString()"),
        "const now = new Date(); " + PUBLISH.replace('messageId: "1"', "messageId: now.toISOString().slice(0, 10)"),
        "new Date()",
    ),
    producer(
        "volatile-id",
        PUBLISH.replace('id: "1", title', "id: §String(Math.random()), title"),
        PUBLISH.replace('id: "1", title', "id: `${new Date().getFullYear()}`, title"),
        "Math.random()",
    ),
    Case(
        "volatile-id",
        CLEAN,
        "const unique = (x) => { return x + Math.random().toString(36); };\n"
        + CLEAN.replace("// NEXT", 'ctx.publish("row.out", { messageId: §unique("a"), payload: {} });'),
        "const unique = (x) => { return x + Math.random().toString(36); };\n"
        + CLEAN.replace(
            "// NEXT", 'ctx.publish("row.out", { messageId: "a", payload: { at: Date.now(), k: unique("a") } });'
        ),
    ),
    routine(
        "volatile-id",
        "let id = state; id += Date.now(); await ctx.withItem(§id, 't', async () => {});",
        "const rows = await ctx.gmail.search({ after: Date.now() }); "
        "for (const row of rows.filter((r) => r.at < Date.now())) await ctx.withItem(row.id, 't', async () => {});",
    ),
    routine(
        "volatile-id",
        in_item("await ctx.crm.add({ key: §`k${Date.now()}` });"),
        in_item("await ctx.crm.add({ key: 'k', tags: [`${Date.now()}`] });"),
        "`key`, which says what `ctx.crm.add` is about",
    ),
    routine(
        "volatile-id",
        in_item("await ctx.crm.log(§{ at: Date.now() });"),
        in_item("await ctx.crm.log({ at: state });"),
    ),
    routine(
        "volatile-id",
        in_item("await ctx.gmail.send({ subkey: §`${Math.random()}` });"),
        in_item("await ctx.gmail.send({ subkey: 'a' });"),
        "The `subkey`",
    ),
    producer(
        "volatile-id",
        "const e = { id: Date.now(), at: 1 }; " + PUBLISH.replace('messageId: "1"', "messageId: §e.id"),
        "const e = { ...state, at: Date.now() }; " + PUBLISH.replace('messageId: "1"', "messageId: e.id"),
    ),
]

OTHERS = [
    producer("state-outside", "f(§ctx.state);", "f(state);", "second parameter"),
    prepare("state-outside", "const n = §ctx.state?.n;", "const n = state?.n;", "prepare(ctx, state)"),
    prepare("state-outside", "const { state: §old } = ctx;", "const old = state;"),
    mutate("state-outside", "f(§ctx.state.n);", "f(prepared.data.n);", "prepared.data"),
    routine("state-outside", "f(§ctx.state);", "f(state);"),
    then("state-changed", "§ctx.state.n = 1;", "return { ...ctx.state, n: 1 };", "Return the new state"),
    then("state-changed", "§ctx.state = { n: 1 };", "return { n: ctx.state.n };"),
    producer(
        "unknown-field",
        f'{REGISTER} ctx.publish("mail.in", {{ messageId: "1", inputId, §data: {{}} }});',
        PUBLISH,
        'Did you mean "payload"?',
    ),
    then(
        "input-id-ignored",
        'ctx.publish("row.out", { messageId: "1", §inputId: "a", payload: {} });',
        'ctx.publish("row.out", { messageId: "1", payload: {} });',
        "Remove",
    ),
    Case("empty-publishes", 'publishes: ["mail.in"]', "publishes: §[]"),
    Case(
        "publishes-without-next",
        CLEAN[CLEAN.index('      publishes: ["row.out"]') : CLEAN.index("    // CONSUMERS")],
        f'      publishes: §["row.out"],\n      async prepare(ctx) {{ {NOTHING} }} }}),\n',
        f"      publishes: [],\n      async prepare(ctx) {{ {NOTHING} }} }}),\n",
        "publishes: []",
    ),
    *(
        Case("shared-state", CLEAN, f"{declared}\n" + CLEAN.replace("// PRODUCER", f"§{change}"), CLEAN)
        for declared, change in [
            ("let c = [];", "c.push(1);"),
            ("let c = new Set();", "c.add(1);"),
            ("var c = new Map();", "c.set(1, 1);"),
            ("const c = Array(3);", "c.push(1);"),
            ("const c = Array.from([1]);", "c.pop();"),
            ("const c = [1].map(String);", "c.sort();"),
            ("const c = new Set();", 'c["add"](1);'),
        ]
    ),
    Case(
        "shared-state",
        CLEAN,
        "const c = new Map();\n" + CLEAN.replace("// PRODUCER", "const d = c; §d.set(1, 2);"),
        CLEAN,
    ),
    Case(
        "shared-state",
        CLEAN,
        "const c = { list: [] };\n" + CLEAN.replace("// PRODUCER", "const { list } = c; §list.push(1);"),
        "const c = { list: [] };\n" + CLEAN.replace("// PRODUCER", "const list = [...c.list]; list.push(1);"),
    ),
    Case("shared-state", CLEAN, "let c = 0;\n" + CLEAN.replace("// PRODUCER", "§[c] = [1];"), CLEAN),
]

CASES = [
    *TEXT,
    *STATE,
    *SHAPE,
    *TOPICS,
    *CALLS,
    *MUTATIONS,
    *PREPARE,
    *ITEMS,
    *GLOBALS,
    *PARAMS,
    *PROMISES,
    *CATCHES,
    *VOLATILE,
    *OTHERS,
]

#: Found by tests of their own.
ELSEWHERE = {"does-not-load", "too-large", "too-deep", "too-slow", "too-many-findings"}


def test_the_clean_script_has_no_findings() -> None:
    assert check(CLEAN, SURFACE).findings == ()


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.code}: {c.bad[:60]!r}")
def test_a_bad_script_earns_just_its_finding_at_its_place(case: Case) -> None:
    assert case.old in CLEAN
    bad, place = marked(CLEAN.replace(case.old, case.bad, 1))
    findings = check(bad, SURFACE).findings
    place = place or (2, 30)  # without a mark: the workflow itself
    assert [(f.code, (f.line, f.column)) for f in findings] == [(case.code, place)]
    assert findings[0].severity == CODES[case.code].severity
    assert findings[0].message.endswith(".")
    assert findings[0].fix
    assert case.says in findings[0].message + " " + findings[0].fix


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.code}: {c.bad[:60]!r}")
def test_the_mended_script_has_no_findings(case: Case) -> None:
    good = CLEAN.replace(case.old, case.good if case.good is not None else case.old, 1)
    assert check(good, SURFACE).findings == ()


def test_every_code_is_tested_and_explained() -> None:
    assert {case.code for case in CASES} | ELSEWHERE == set(CODES)
    assert all(meaning.sentence.endswith(".") for meaning in CODES.values())
    assert all(code == code.lower() and " " not in code for code in CODES)


@pytest.mark.parametrize(("topic", "circles"), [
    ('"mail.in"', ["work → mail.in → work"]), ('["row.out", "mail.in"]', ["work → mail.in → work"]),
    ("prepared.data.topic", ["work → mail.in → work"]), ('"row.out"', []), ("", []),
])
def test_a_circle_is_found_also_where_a_consumer_does_not_say_what_it_publishes(topic: str, circles: list[str]) -> None:
    publish = f'await ctx.publish({topic}, {{ messageId: "1", payload: 1 }});' if topic else ""
    silent = CLEAN.replace('publishes: ["row.out"],', "").replace("// NEXT", publish)
    assert silent.count("publishes") == CLEAN.count("publishes") - 1
    found = [each for each in check(silent, SURFACE).findings if each.code == "topic-cycle"]
    assert [each.message for each in found] == [f"Events can go round in a circle: {way}." for way in circles]
    lines = silent.splitlines()
    last = topic.strip("[]").split(", ")[-1]
    assert [lines[each.line - 1][each.column - 1 :].startswith(last) for each in found] == [True] * len(circles)
