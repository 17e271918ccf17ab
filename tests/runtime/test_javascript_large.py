"""Large values stay outside of the VM until the script touches them, and no script can tell."""

# ruff: noqa: E501 (scripts are easier to read on one line)

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepai.model.codec import CheckedText, decode, encode, text_of
from keepai.model.errors import BadValue, LimitExceeded, ScriptError
from keepai.model.operations import Kind, Step
from keepai.runtime.base import LARGE, Job, Operation, Reply
from keepai.runtime.event_texts import in_pieces, listed, shown, with_events
from keepai.runtime.javascript.large_values import MARK, STRING, LargeValues, NotHere
from tests.runtime.forger import Forger, call, end
from tests.runtime.script_world import LIMITS, FakeHost, job, value

asynchronous = pytest.mark.asyncio(loop_scope="session")

TEXT = "é" + "x" * 5000
ROWS = [{"id": f"r{i}", "n": i, "f": i + 0.25, "ok": i % 2 == 0, "no": None} for i in range(200)]
PAYLOAD = {"id": "p", "body": TEXT, "rows": ROWS, "small": [1, {"a": 2}], "__proto__": "own", "toJSON": 1}


def events(count: int = 2) -> Reply:
    """What `peek` gives: a small event, and large ones."""
    found = [shown("t", "s", '{"n":1}'), *[shown("t", f"m{i}", encode(PAYLOAD)) for i in range(1, count)]]
    text, cuts = listed(found)
    return Reply(text, '{"cursor":"5"}', cuts=cuts)


def answer(_: Operation) -> Reply:
    return events()


#: What a script may do with an event; `e` is one whose payload is large, and `list` the page that it stands in.
PROBES = {
    "typeof": "[typeof e, typeof e.payload, typeof e.payload.body, typeof e.payload.rows]",
    "keys": "[Object.keys(e), Object.keys(e.payload), Object.getOwnPropertyNames(e), Reflect.ownKeys(e.payload)]",
    "keys, before anything else": "Reflect.ownKeys(e)",
    "stringify": "JSON.stringify(e)",
    "stringify with a replacer": "JSON.stringify(e, (k, v) => (k === 'rows' ? v.length : v), 1)",
    "the page": "[JSON.stringify(list), list.length, list.cursor, Array.isArray(list), Object.keys(list)]",
    "spread": "({...e, more: 1})",
    "spread of the payload": "({...e.payload})",
    "destructured": "(({payload: {body, ...rest}, ...others}) => [body.length, rest, others])(e)",
    "assigned": "Object.assign({}, e)",
    "entries": "[Object.entries(e), Object.values(e.payload)]",
    "in": "['payload' in e, 'body' in e.payload, 'nothing' in e, delete e.payload, 'payload' in e]",
    "for in": "(() => { const names = []; for (const k in e) names.push(k); for (const k in e.payload) names.push(k); return names; })()",
    "descriptors": "[Object.getOwnPropertyDescriptors(e), Object.getOwnPropertyDescriptor(e.payload, 'body')]",
    "its own": "[Object.hasOwn(e, 'payload'), e.hasOwnProperty('payload'), e.propertyIsEnumerable('payload'), e.payload.__proto__]",
    "prototype": "[Object.getPrototypeOf(e) === Object.prototype, e instanceof Object, e.constructor === Object, String(e)]",
    "identity": "[e === e, e.payload === e.payload, e.payload.rows === e.payload.rows, list[1] === e, list.indexOf(e), list.includes(e)]",
    "strings": "[e.payload.body === e.payload.body, e.payload.body.length, e.payload.body[0], e.payload.body + '!', e.payload.body.slice(0, 3)]",
    "write": "(() => { e.payload = 5; return [e, e.payload]; })()",
    "write into it": "(() => { e.payload.body = 1; e.payload.rows.push(2); e.payload.rows[0].n = 9; return e; })()",
    "write beside it": "(() => { e.extra = 1; e.topic = 'u'; return [e, Object.keys(e)]; })()",
    "define": "(() => { Object.defineProperty(e, 'payload', {enumerable: false}); return [Object.keys(e), e.payload.id, JSON.stringify(e)]; })()",
    "define a getter": "(() => { Object.defineProperty(e, 'topic', {get() { return this.payload.id; }}); return [e, e.topic]; })()",
    "delete": "(() => { delete e.payload; return [e, e.payload, Object.keys(e)]; })()",
    "delete and write": "(() => { delete e.payload; e.payload = 1; return [e, Object.keys(e)]; })()",
    "freeze": "(() => { 'use strict'; Object.freeze(e); try { e.payload = 1; } catch (x) { return [x.name, e.payload.id, Object.isFrozen(e)]; } })()",
    "deep freeze": "(() => { const deep = (v) => { if (typeof v === 'object' && v !== null) { Object.values(v).forEach(deep); Object.freeze(v); } return v; }; deep(e); return [e, Object.isFrozen(e.payload.rows[0])]; })()",
    "seal": "(() => { Object.seal(e); try { delete e.topic; } catch {} e.payload.id = 2; try { e.more = 1; } catch (x) { e.topic = x.name; } return [e, Object.isSealed(e)]; })()",
    "no extensions": "(() => { Object.preventExtensions(e); try { e.more = 1; } catch (x) { e.topic = x.name; } return [e, Object.isExtensible(e)]; })()",
    "a setter": "(() => { Object.defineProperty(e, 'x', {set(v) { this.payload.id = v; this.me = this === e; }}); e.x = 3; return [e, e.payload.id]; })()",
    "a setter on the prototype": "(() => { Object.defineProperty(Object.prototype, 'q', {configurable: true, set(v) { seen.push(this === e, v); }}); const seen = []; e.q = 3; delete Object.prototype.q; return [seen, Object.keys(e)]; })()",
    "another prototype": "(() => { e.__proto__ = {up: 1}; return [e.up, Object.keys(e), e.payload.id, Object.getPrototypeOf(e).up]; })()",
    "a member that is fixed": "(() => { Object.defineProperty(e, 'topic', {writable: false}); try { e.topic = 1; } catch (x) { return [x.name, e]; } })()",
    "inherited": "(() => { const child = Object.create(e); child.topic = 'u'; return [child.payload.id, child, e.topic, Object.keys(child)]; })()",
    "written through a child": "(() => { const child = Object.create(e); child.payload = 1; return [child.payload, e.payload.id]; })()",
    "cloned": "structuredClone(e)",
    "compared": "JSON.stringify(e) === JSON.stringify({messageId: e.messageId, payload: e.payload, topic: e.topic})",
    "shown": "`${e} ${list.length} ${Object.prototype.toString.call(e)} ${Object.prototype.toString.call(list)}`",
    "of the array": "[list.map((x) => x.messageId), list.filter((x) => x.payload.rows).length, [...list].length, list.slice(1), list.concat([1]).length, list.find((x) => x.payload.id).topic]",
    "sorted": "list.sort((a, b) => (a.messageId < b.messageId ? -1 : 1)).map((x) => x.payload.id ?? x.payload.n)",
    "copied to": "(() => { const all = [e, e]; all[0].payload.id = 'q'; return all; })()",
    "moved": "({to: {deep: [e.payload.body, {x: e.payload.rows}]}, and: e.payload})",
    "toJSON on a prototype": "(() => { Object.prototype.toJSON = () => 'no'; try { return JSON.stringify(e); } finally { delete Object.prototype.toJSON; } })()",
    "an own toJSON": "(() => { e.toJSON = function () { return [this.payload.id, this === e]; }; return e; })()",
    "a proxy of it": "new Proxy(e, {get: (t, k) => (k === 'topic' ? 'u' : t[k])})",
    "with": "Reflect.get(e, 'payload', {}).id",
    "set with a receiver": "(() => { const other = {}; return [Reflect.set(e, 'payload', 7, other), other, e.payload.id]; })()",
    "nothing": "e",
    "the page itself": "list",
    "nothing of the payload": "e.payload",
    "a look, and nothing of the rest": "(() => { const {id} = e.payload; return [id, e]; })()",
}


@asynchronous
@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
async def test_a_script_sees_the_same_in_a_value_that_is_left_out_as_in_one_that_is_there(runtime, host, probe) -> None:
    host.answers["peek"] = answer
    plain = json.dumps(events().text)
    body = """
      const look = (list) => { const e = list[1]; return PROBE; };
      const built = JSON.parse(PLAIN);
      built.cursor = "5";
      const [there] = [JSON.stringify(look(built))];
      return [look(await ctx.peek("t")), JSON.parse(there ?? "null")];
    """.replace("PROBE", probe).replace("PLAIN", plain)
    left_out, there = value((await runtime.run(job(body, Step.PREPARE), host)).value)
    assert left_out == there
    assert encode(left_out) == encode(there)  # in the same order


@asynchronous
async def test_what_is_not_touched_comes_back_whole_and_is_checked_in_its_real_size(runtime, host) -> None:
    host.answers["peek"] = answer
    ended = await runtime.run(job("return {list: await ctx.peek('t')};", Step.PREPARE), host)
    assert value(ended.value) == {"list": decode(events().text)}
    few = replace(LIMITS, message_bytes_max=len(events().text) + 2000)
    twice = "const list = await ctx.peek('t'); return {one: list, two: list};"
    with pytest.raises(LimitExceeded, match="The result"):
        await runtime.run(job(twice, Step.PREPARE, limits=few), host)
    with pytest.raises(LimitExceeded, match=r"What ctx.gmail.search was given"):
        await runtime.run(job("const l = await ctx.peek('t'); await ctx.gmail.search(l, l);", Step.PREPARE, limits=few), host)


@asynchronous
@pytest.mark.parametrize("forged", [
    "'\\x010\\x01'", "'\\u00010\\u0001'", "{a: '\\x010\\x01', '\\x010\\x01': 1}", "['\\x01', 0, '\\x01']",
    "'\\x01[[[],\"payload\",0]]\\nnull'", "{toJSON: () => '\\x010\\x01'}", "{toString: () => '\\x010\\x01'}", "'\\\\u00010\\\\u0001'",
])
async def test_a_string_that_looks_like_a_reference_is_just_a_string(runtime, host, forged) -> None:
    host.answers["peek"] = answer
    body = f"await ctx.peek('t'); const f = {forged}; await ctx.gmail.search(f); return [f, JSON.stringify(f)];"
    ended = await runtime.run(job(body, Step.PREPARE), host)
    said, text = value(ended.value)
    assert said == json.loads(text)
    assert host.operations[-1].args[0] == said
    assert "xxxx" not in json.dumps([said, host.operations[-1].args])


@asynchronous
async def test_a_reference_means_only_what_its_own_step_was_given(runtime, host) -> None:
    host.answers["peek"] = lambda _: Reply.of([{"messageId": "other", "payload": "S" * 9000, "topic": "t"}])
    await runtime.run(job("const [e] = await ctx.peek('t'); return e.payload.length;", Step.PREPARE), host)
    host.answers["peek"] = answer
    ended = await runtime.run(job("const l = await ctx.peek('t'); return [l, JSON.stringify(globalThis)];", Step.PREPARE), host)
    assert "SSSS" not in (ended.value or "")


@asynchronous
async def test_a_large_answer_of_a_connector_a_large_argument_and_a_large_page_are_left_out_as_well(runtime, host) -> None:
    mails = [{"id": f"m{i}", "body": TEXT, "rows": ROWS[: 50 * i]} for i in range(3)]
    host.answers["gmail.search"] = lambda _: Reply.of(mails, {"lastCursor": "c", "extra": {"deep": TEXT}})
    body = """
      const mails = await ctx.gmail.search({});
      const ids = mails.map((mail) => mail.id);
      return {ids, cursor: mails.lastCursor, extra: mails.extra, mails, one, of: one.rows?.length, last: {...mails[2]}};
    """
    given = {"id": "s", "rows": ROWS, "text": TEXT}
    ended = await runtime.run(job(body, Step.PREPARE, args=(encode(given),)), host)
    said = value(ended.value)
    assert said == {
        "ids": ["m0", "m1", "m2"], "cursor": "c", "extra": {"deep": TEXT}, "mails": mails, "one": given, "of": 200,
        "last": mails[2],
    }


@asynchronous
async def test_what_a_script_publishes_untouched_arrives_whole(runtime, host) -> None:
    mails = [{"id": "a", "body": TEXT, "rows": ROWS}]
    host.answers["gmail.search"] = lambda _: Reply.of(mails)
    body = "for (const mail of await ctx.gmail.search({})) await ctx.publish('t', {messageId: mail.id, payload: mail});"
    await runtime.run(job(body, Step.PRODUCER), host)
    published = [each.args for each in host.operations if each.kind is Kind.PUBLISH]
    assert published == [("t", {"messageId": "a", "payload": mails[0]})]


@asynchronous
async def test_a_value_that_json_cannot_carry_is_refused_beside_one_that_is_left_out(runtime, host) -> None:
    host.answers["peek"] = answer
    with pytest.raises(BadValue, match=r"The result\[1\]\.bad is NaN"):
        await runtime.run(job("const l = await ctx.peek('t'); l[1].bad = NaN; return l;", Step.PREPARE), host)


@asynchronous
async def test_prepared_and_its_events_are_one_plain_object(runtime, host) -> None:
    pinned = [shown("t", f"m{i}", encode({"n": i, "body": TEXT if i % 2 else "s"})) for i in range(3)]
    for count in (3, 300):  # also when there are so many that the list itself is left out
        text, cuts = with_events('{"reservations":[],"data":{"k":1}}', pinned * (count // 3))
        body = "return [Object.keys(one), one.data, one.events.length, one.events.at(-1), JSON.stringify(one) === JSON.stringify({...one}), one];"
        ended = await runtime.run(job(body, Step.NEXT, args=(text, "null"), cuts=cuts), host)
        names, data, length, last, same, whole = value(ended.value)
        assert (names, data, length, same) == (["reservations", "data", "events"], {"k": 1}, count, True)
        assert last == decode(pinned[2].text)
        assert whole == decode(text)


# What the worker does


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.sampled_from(["x" * 3000, "é" * 2500]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4), max_leaves=12,
)


@given(VALUES)
def test_what_is_left_out_belongs_where_it_says(made: object) -> None:
    values = LargeValues()

    def filled(text: str) -> object:
        if text.startswith(STRING):
            return text[1:]
        places = []
        if text.startswith(MARK):
            first, _, text = text[1:].partition("\n")
            places = json.loads(first)
        whole = json.loads(text)
        for path, *left in places:
            owner = whole
            for key in path:
                owner = owner[key]
            for key, number in zip(left[::2], left[1::2], strict=True):
                assert owner[key] is None
                owner[key] = filled(values.fetch(number))
        return whole

    skeleton, places = values.shown(encode(made))
    number = values._keep(encode(made))
    assert filled(values.fetch(number)) == made
    assert not places or len(skeleton) < len(encode(made)) - LARGE / 2
    assert json.loads(values.whole(f'{{"a":{MARK}{number}{MARK}}}')) == {"a": made}


def test_a_value_that_is_not_here_is_no_value() -> None:
    values = LargeValues()
    number = values._keep("")
    for act in (lambda: values.fetch(number), lambda: values.whole(f"{MARK}{number}{MARK}")):
        with pytest.raises(NotHere):
            act()


# What a step publishes

MAILS = [{"id": f"m{i}", "body": TEXT, "rows": ROWS} for i in range(2)]
PUBLISHED = {
    "untouched": ("mail", MAILS[1]),
    "a member": ("mail.rows", ROWS),
    "beside others": ("{...mail, n: [0.05, 1e21 / 1e20, 'NaN'], e: 1e-7}", MAILS[1] | {"n": [0.05, 10, "NaN"], "e": 1e-7}),
    "twice": ("[mail, mail]", [MAILS[1], MAILS[1]]),
    "deeper than it was": ("{a: {b: {c: mail}}}", {"a": {"b": {"c": MAILS[1]}}}),
    "in part": ("{body: mail.body, rows: mail.rows.slice(1)}", {"body": TEXT, "rows": ROWS[1:]}),
    "in another text": ("mail.body + mail.id", TEXT + "m1"),
    "among much else": ("[mail, 'y'.repeat(9000)]", [MAILS[1], "y" * 9000]),
    "changed": ("(() => { mail.rows[0].n = 7; return mail; })()", MAILS[1] | {"rows": [ROWS[0] | {"n": 7}, *ROWS[1:]]}),
}


@asynchronous
@pytest.mark.parametrize(("payload", "expected"), PUBLISHED.values(), ids=PUBLISHED.keys())
async def test_what_was_read_is_published_as_it_is(runtime, host, payload, expected) -> None:
    text, cuts = in_pieces(MAILS)
    host.answers["gmail.search"] = lambda _: Reply(text, cuts=cuts)
    body = f"const [, mail] = await ctx.gmail.search(); ctx.publish('t', {{messageId: 'm', payload: {payload}}});"
    await runtime.run(job(body), host)
    topic, entry = host.operations[-1].args
    assert (topic, entry["messageId"], text_of(entry["payload"])) == ("t", "m", encode(expected))


@asynchronous
async def test_what_is_published_untouched_is_not_sent_back(runtime, host) -> None:
    text, cuts = in_pieces(MAILS)
    host.answers["gmail.search"] = lambda _: Reply(text, cuts=cuts)
    body = "const [mail] = await ctx.gmail.search(); ctx.publish('t', {title: mail.body, payload: mail});"
    await runtime.run(job(body), host)
    _, entry = host.operations[-1].args
    assert entry["payload"] == {
        "id": "m0", "body": CheckedText(text_of(TEXT), 2), "rows": CheckedText(text_of(ROWS), 2)}
    assert entry["title"] == TEXT, "whatever is not the payload is read"


READ, CUTS = in_pieces([{"rows": ROWS}])
PRODUCER = job("return 1;")
HALF = replace(PRODUCER, limits=replace(LIMITS, message_bytes_max=len(READ) * 3 // 2))
FORGED_NAMES = {
    "of a call that was not made": (PRODUCER, '{"payload":\x012.0\x01}', "broke the protocol"),
    "of a value that was not given": (PRODUCER, '{"payload":\x011.1\x01}', "broke the protocol"),
    "of a kind that the worker alone knows": (PRODUCER, '{"payload":\x011\x01}', "not valid JSON"),
    "inside a string": (PRODUCER, '{"payload":"\x011.0\x01"}', "not valid JSON"),
    "as a key": (PRODUCER, '{\x011.0\x01:1}', "not valid JSON"),
    "beside a number that is none": (PRODUCER, '{"payload":[\x011.0\x01,NaN]}', "not valid JSON"),
    "with a key that stands twice": (PRODUCER, '{"payload":\x011.0\x01,"payload":1}', "stands twice"),
    "with an integer that is too large": (PRODUCER, '{"payload":[\x011.0\x01,9007199254740993]}', "beyond"),
    "with a lone surrogate": (PRODUCER, '{"payload":[\x011.0\x01,"\\ud800"]}', "lone surrogate"),
    "deeper than values may be": (PRODUCER, '{"payload":' + "[" * 62 + "\x011.0\x01" + "]" * 62 + "}", "deeper than 64"),
    "deeper than texts may be": (PRODUCER, '{"payload":' + "[" * 9999 + "\x011.0\x01" + "]" * 9999 + "}", "deeper than 64"),
    "more often than its size allows": (HALF, '{"payload":[\x011.0\x01,\x011.0\x01]}', "larger than the message limit"),
}


async def published(host: FakeHost, made: Job, *args: str) -> None:
    """A forged step reads, and then publishes this."""
    host.answers["gmail.search"] = lambda _: Reply(READ, cuts=CUTS)
    later = call(*args, name="publish", id=2) + end()
    await Forger().run(call(name="gmail.search", id=1), made, host, later=later)


@asynchronous
@pytest.mark.parametrize(("made", "entry", "said"), FORGED_NAMES.values(), ids=FORGED_NAMES.keys())
async def test_a_forged_name_of_a_value_ends_the_step(host, made, entry, said) -> None:
    with pytest.raises(ScriptError, match=said):
        await published(host, made, '"t"', entry)
    assert host.names == ["gmail.search"]


@asynchronous
@pytest.mark.parametrize("args", [("\x011.0\x01",), ("\x011.0\x01", "{}"), ('"t"', "{}", "\x011.0\x01")])
async def test_only_the_event_may_name_values(host, args) -> None:
    with pytest.raises(BadValue, match="not valid JSON"):
        await published(host, PRODUCER, *args)


@asynchronous
async def test_a_name_that_is_in_no_place_of_a_value_does_no_harm(host) -> None:
    await published(host, PRODUCER, '"t"', '{"payload":["\x011.0\x01",NaN]}')
    assert decode(text_of(host.operations[1].args[1])) == {"payload": ["NaN", ROWS]}


@asynchronous
async def test_no_more_is_kept_for_its_name_than_a_message_holds(runtime, host) -> None:
    few = replace(LIMITS, message_bytes_max=len(READ) * 3 // 2)
    host.answers["gmail.search"] = lambda _: Reply(READ, cuts=CUTS)
    body = "for (const n of [1, 2]) { const [mail] = await ctx.gmail.search(n); ctx.publish('t', {payload: mail}); }"
    await runtime.run(job(body, limits=few), host)
    payloads = [operation.args[1]["payload"] for operation in host.operations if operation.name == "publish"]
    assert payloads == [{"rows": CheckedText(text_of(ROWS), 2)}, {"rows": ROWS}]
