// What a script finds in its world: Keep, ctx, console, chance; and how values leave and enter it.
//
// Runs before the script, once, into the memory image. Everything used later is captured here, and nothing
// later goes through a prototype that the script can change: no method calls on values, no iteration
// protocol, no array writes but to own members that are there, only captured functions, own properties and
// null-prototype objects. Texts are joined by `+`: a template would call String.prototype.concat.
// `host` raises a trap for whatever ends the script; it never returns from those.
(function () {
  "use strict";
  const host = globalThis.__host;
  delete globalThis.__host;

  const { Error, Promise, Proxy, WeakMap, WeakSet, JSON, String } = globalThis;
  const { apply, deleteProperty, getOwnPropertyDescriptor, getPrototypeOf, preventExtensions } = Reflect;
  const { defineProperty: define, get: valueOf, set: setValue } = Reflect;
  const { create, defineProperty, freeze, hasOwn, keys } = Object;
  const { isArray } = Array;
  const { captureStackTrace } = Error;
  const { isFinite, isInteger, isSafeInteger } = Number;
  const { parse } = JSON;
  const quote = JSON.stringify; // of strings only: those never reach a toJSON
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const indexOf = uncurry(String.prototype.indexOf);
  const slice = uncurry(String.prototype.slice);
  const marked = new WeakSet();
  const mark = uncurry(WeakSet.prototype.add);
  const isMarked = uncurry(WeakSet.prototype.has);
  const stackOf = uncurry(Object.getOwnPropertyDescriptor(Error.prototype, "stack").get);
  const { imul } = Math;
  const ObjectPrototype = Object.prototype;
  const ArrayPrototype = Array.prototype;

  const DEPTH_MAX = 64; // as the host's codec counts
  const zeros = (count) => parse("[0" + ",0".repeat(count - 1) + "]");
  const TEXT_MAX = 2000;
  const LINE_MAX = 8192;

  const record = (fields) => {
    const made = create(null);
    const names = keys(fields);
    for (let i = 0; i < names.length; i++) made[names[i]] = fields[names[i]];
    return made;
  };
  const fixed = (owner, name, value) =>
    defineProperty(owner, name, { __proto__: null, value, writable: false, enumerable: true, configurable: false });
  const cut = (text, max) => (text.length > max ? slice(text, 0, max) + "…" : text);
  const FRAMES_MAX = 24;
  const { set: limitFrames } = Object.getOwnPropertyDescriptor(Error, "stackTraceLimit");
  const traceOne = limitFrames.bind(Error, 1);
  const traceMany = limitFrames.bind(Error, FRAMES_MAX);
  const here = () => cut(stackOf(new Error()), 4000);

  // ---- values out ----------------------------------------------------------------------------------------

  // Own members as JSON carries them exactly; anything else ends the script and names its place. `out` says what is
  // written: argument `index` of `count` of a call of `name`, or without a name the result; `read` for its place; and
  // `trail`, by depth the keys to the present value. It is a list, which costs a quarter of an object. The trail is
  // made once; only what is written while something else is (by a getter, say) has its own.
  const TRAIL = zeros(DEPTH_MAX + 1);
  // How a member begins: the first of its object, and those after it; by the names that the script's own text has.
  const first = create(null);
  const after = create(null);
  let isWriting = false;
  const encode = (value, name, index, count, read) => {
    if (typeof value === "string") return string(value);
    const isWithin = isWriting;
    isWriting = true;
    const text = write(value, 0, [name, index, count, read, isWithin ? create(null) : TRAIL]);
    isWriting = isWithin;
    return text;
  };
  const inWords = (out) => {
    if (!out[0]) return "the result";
    return (out[2] > 1 ? "argument " + (out[1] + 1) : "the argument") + " of ctx." + out[0];
  };
  const tooLarge = (out) => host("large", inWords(out), out[3]);
  const write = (v, depth, out) => {
    const kind = typeof v;
    if (kind === "object") return v === null ? "null" : compound(v, depth, out);
    if (kind === "number") return number(v, depth, out);
    if (kind === "boolean") return v ? "true" : "false";
    if (kind === "string") return string(v);
    return kind === "bigint" ? refuse(depth, out, "is a BigInt, which JSON cannot carry. Use a string.") : undefined;
  };
  const compound = (v, depth, out) => {
    if (depth >= DEPTH_MAX) refuse(depth, out, "is nested deeper than " + DEPTH_MAX + " levels (or contains itself). Flatten it.");
    const parent = getPrototypeOf(v);
    if ((parent !== ObjectPrototype && parent !== ArrayPrototype) || hasOwn(v, "toJSON")) { // few
      const toJSON = ownToJSON(v);
      if (toJSON) return write(apply(toJSON, v, [""]), depth + 1, out);
    }
    const owner = anyLeftOut ? ownerOf(owners, v) ?? v : v;
    const left = owner === v ? undefined : leftOf(leftOut, owner);
    return isArray(v) ? list(v, depth, out, left) : object(v, keys(owner), depth, out, left);
  };
  const list = (v, depth, out, left) => {
    const trail = out[4];
    let text = "[";
    for (let i = 0; i < v.length; i++) {
      if (i) text += ",";
      if (left !== undefined && hasOwn(left, i)) {
        text += reference(left[i]);
        continue;
      }
      const item = v[i];
      if (typeof item === "string") {
        text += string(item);
      } else {
        trail[depth] = i;
        text += write(item, depth + 1, out) ?? "null";
      }
      if (text.length > messageMax) tooLarge(out);
    }
    return text + "]";
  };
  const object = (v, names, depth, out, left) => {
    const trail = out[4];
    let text = "";
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      let member;
      if (left !== undefined && hasOwn(left, name)) {
        member = reference(left[name]);
      } else {
        const value = v[name];
        if (typeof value === "string") {
          member = string(value);
        } else {
          trail[depth] = name;
          member = write(value, depth + 1, out);
          if (member === undefined) continue;
        }
      }
      if (text) text += after[name] ?? "," + quote(name) + ":";
      else text = first[name] ?? "{" + quote(name) + ":";
      text += member;
      if (text.length > messageMax) tooLarge(out);
    }
    return text ? text + "}" : "{}";
  };
  const number = (v, depth, out) => {
    if ((v | 0) === v) return "" + v;
    if (!isFinite(v)) refuse(depth, out, "is " + v + ", which JSON cannot carry.");
    if (isInteger(v) && !isSafeInteger(v)) refuse(depth, out, "is an integer beyond ±(2^53−1). Use a string.");
    return "" + v;
  };
  const refuse = (depth, out, why) => {
    const trail = out[4];
    let text = inWords(out);
    for (let i = 0; i < depth; i++) text += typeof trail[i] === "number" ? "[" + trail[i] + "]" : "." + trail[i];
    host("bad", cut(text, 300) + " " + why, out[3]);
  };

  // A class's toJSON (Date's, say) counts; one that was hung on all objects or arrays does not.
  const ownToJSON = (v) => {
    for (let p = v; p !== null && p !== ObjectPrototype && p !== ArrayPrototype; p = getPrototypeOf(p)) {
      if (hasOwn(p, "toJSON")) return typeof v.toJSON === "function" ? v.toJSON : undefined;
    }
    return undefined;
  };

  // ---- values in -----------------------------------------------------------------------------------------

  // A value; or, after a line's end, the extra members of a page on a line of their own, and the page. The long text
  // comes last, so that nothing searches it: to search it takes sixteen times as long as to parse it.
  const decode = (text) => {
    if (text[0] === MARK) {
      const end = indexOf(text, "\n");
      return filled(decode(slice(text, end + 1)), parse(slice(text, 1, end)));
    }
    if (text[0] !== "\n") return parse(text);
    const border = indexOf(text, "\n", 1);
    const fields = parse(slice(text, 1, border));
    const page = parse(slice(text, border + 1));
    const names = keys(fields);
    for (let i = 0; i < names.length; i++) {
      if (hasOwn(page, names[i])) continue;
      defineProperty(page, names[i], record({ value: fields[names[i]], writable: true, enumerable: true, configurable: true }));
    }
    return page;
  };

  const deepFreeze = (v) => {
    if (typeof v !== "object" || v === null) return v;
    const names = keys(v);
    for (let i = 0; i < names.length; i++) deepFreeze(v[names[i]]);
    return freeze(v);
  };

  // ---- large values --------------------------------------------------------------------------------------

  // They stay with the worker until the script reads them (large_values.py). The script gets an object or array from
  // which members are left out as a proxy, which fetches such a member when its value is read; the script cannot notice.
  // A member that was not read is written as a reference, and so is a long string that was fetched and comes back. JSON
  // texts contain no raw control characters, so a script cannot write a reference.
  const MARK = "\x01";
  const STRING = "\x02"; // after it comes a string, as it is
  const LARGE = 2048;
  const owners = new WeakMap(); // proxy → what it stands for
  const leftOut = new WeakMap(); // that → by key, the numbers of the members that are not there yet
  const ownerOf = uncurry(WeakMap.prototype.get);
  const leftOf = ownerOf;
  const setIn = uncurry(WeakMap.prototype.set);
  let anyLeftOut = false;
  const fetched = create(null); // by length: a long string, its number, and the next of the same length
  const reference = (number) => MARK + number + MARK;
  const string = (text) => {
    if (text.length > LARGE) {
      for (let known = fetched[text.length]; known !== undefined; known = known.next) {
        if (known.text === text) return reference(known.number);
      }
    }
    return quote(text);
  };
  const fetch = (number) => {
    const text = host("fetch", "" + number);
    if (text[0] !== STRING) return decode(text);
    const value = slice(text, 1);
    fetched[value.length] = record({ text: value, number, next: fetched[value.length] });
    return value;
  };
  const bring = (owner, key) => {
    const left = leftOf(leftOut, owner);
    if (!hasOwn(left, key)) return;
    define(owner, key, record({ value: fetch(left[key]) }));
    delete left[key];
  };
  const isAccessor = (owner, key) => {
    for (let each = owner; each !== null; each = getPrototypeOf(each)) {
      const found = getOwnPropertyDescriptor(each, key);
      if (found !== undefined) return !hasOwn(found, "value");
    }
    return false;
  };
  const bringing = record({
    get: (owner, key, receiver) => {
      bring(owner, key);
      return valueOf(owner, key, receiver);
    },
    // QuickJS forgets that a member could not be written if it is left to find that out by itself.
    set: (owner, key, value, receiver) => {
      bring(owner, key);
      const itself = ownerOf(owners, receiver) === owner && !isAccessor(owner, key);
      return itself ? setValue(owner, key, value) : setValue(owner, key, value, receiver);
    },
    getOwnPropertyDescriptor: (owner, key) => {
      bring(owner, key);
      return getOwnPropertyDescriptor(owner, key);
    },
    defineProperty: (owner, key, given) => {
      bring(owner, key);
      return define(owner, key, given);
    },
    deleteProperty: (owner, key) => {
      delete leftOf(leftOut, owner)[key];
      return deleteProperty(owner, key);
    },
  });
  // `places` are lists: a path, and the key and number of each member that is left out there.
  const filled = (value, places) => {
    anyLeftOut ||= places.length > 0;
    for (let i = 0; i < places.length; i++) {
      const path = places[i][0];
      let holder;
      let owner = value;
      for (let j = 0; j < path.length; j++) {
        holder = owner;
        owner = holder[path[j]];
      }
      const left = create(null);
      for (let j = 1; j < places[i].length; j += 2) left[places[i][j]] = places[i][j + 1];
      const given = new Proxy(owner, bringing);
      setIn(leftOut, owner, left);
      setIn(owners, given, owner);
      if (holder === undefined) value = given;
      else define(holder, path[path.length - 1], record({ value: given }));
    }
    return value;
  };

  // ---- calls ---------------------------------------------------------------------------------------------

  const waiting = create(null); // id → resolve
  const resolved = Promise.resolve.bind(Promise);
  let calls = 0;
  let messageMax = 0;

  // QuickJS locates a call at the last thing evaluated in its arguments. So the place where the member was read is
  // sent, which comes before them. The worker uses it if a call follows there in the source; else it asks for the trace
  // of the call.
  const READS_MAX = 64;
  const reads = zeros(READS_MAX); // lists: a name, and the member with its place
  let readsTop = 0;
  const readOf = (name) => {
    for (let i = readsTop - 1; i >= 0; i--) {
      if (reads[i][0] !== name) continue;
      readsTop = i;
      return reads[i][1];
    }
    return "?";
  };

  const request = (name, args) => {
    const read = readOf(name);
    let text = "";
    for (let i = 0; i < args.length; i++) {
      text += (i ? "\n" : "") + (encode(args[i], name, i, args.length, read) ?? "null");
    }
    return host(++calls + "\n" + name + "\n" + text + "\0" + read);
  };
  const settle = (text) => {
    const border = indexOf(text, "\n");
    const id = slice(text, 0, border);
    const resolve = waiting[id];
    delete waiting[id];
    resolve(decode(slice(text, border + 1)));
  };

  // ---- ctx -----------------------------------------------------------------------------------------------

  // A member that does not exist ends the script: a typo must not become `undefined is not a function` late.
  const closed = (target, path) => {
    const get = (owner, key) => {
      if (hasOwn(owner, key)) {
        const member = owner[key];
        if (typeof member === "function") {
          if (readsTop === READS_MAX) readsTop = 0;
          const place = {};
          traceOne(); // who reads: every frame costs
          captureStackTrace(place, get);
          traceMany();
          reads[readsTop++] = [path ? path + "." + key : key, key + "\n" + cut(place.stack, 4000)];
        }
        return member;
      }
      if (typeof key === "symbol" || key in owner || key === "then" || key === "toJSON") return owner[key];
      return host("missing", path, cut(key, 200), here());
    };
    return new Proxy(target, record({ get }));
  };
  const builtIn = (name, scope) => freeze((...args) => {
    if (scope?.over) host("wrong", "ctx." + name + " belongs to an item that has ended; use the ctx of the item at work.", here());
    const answer = request(name, args);
    if (answer !== undefined) return resolved(decode(answer));
    const id = calls;
    return new Promise((resolve) => { waiting[id] = resolve; });
  });
  const connector = (name, operations, scope) => {
    const made = {};
    const names = keys(operations);
    for (let i = 0; i < names.length; i++) fixed(made, names[i], builtIn(name + "." + names[i], scope));
    return closed(freeze(made), name);
  };
  // An error inside an item ends the routine at once: nothing outside of the item's function can catch it.
  const within = (members) => freeze(async (id, title, work) => {
    if (typeof work !== "function") host("wrong", "ctx.withItem takes an id, a title and a function.", here());
    const state = deepFreeze(decode(request("withItem", [id, title, "begin"])));
    const outside = chance; // an item draws its own numbers, and none of those outside of it
    chance = unseeded();
    const scope = create(null);
    let result;
    try {
      result = await work(contextOf(record({ ...members, ...connectors(scope) }), state));
    } catch (e) {
      describe(e);
    }
    scope.over = true;
    request("withItem", [id, title, "end"]);
    chance = outside;
    return result;
  });
  // What `closed` makes a ctx of, once it is frozen.
  const contents = (members) => {
    const ctx = {};
    const names = keys(members);
    for (let i = 0; i < names.length; i++) fixed(ctx, names[i], members[names[i]]);
    fixed(ctx, "withItem", within(members));
    return ctx;
  };
  const contextOf = (members, item) => {
    const ctx = contents(members);
    if (item !== undefined) fixed(ctx, "item", item);
    return closed(freeze(ctx), "");
  };
  let operations;
  const connectors = (scope) => {
    const made = create(null);
    const names = keys(operations);
    for (let i = 0; i < names.length; i++) made[names[i]] = connector(names[i], operations[names[i]], scope);
    return made;
  };
  const allMembers = () => {
    const members = connectors();
    members.peek = builtIn("peek");
    members.getByIds = builtIn("getByIds");
    members.publish = builtIn("publish");
    members.registerInput = freeze((...args) => decode(request("registerInput", args)));
    members.log = speak("info");
    return members;
  };

  // ---- console -------------------------------------------------------------------------------------------

  const show = (v, depth) => {
    if (typeof v === "string") return depth ? quote(v) : v;
    if (typeof v === "function") return "[function]";
    if (typeof v !== "object" || v === null) return typeof v === "bigint" ? v + "n" : String(v);
    if (isError(v)) return nameOf(v);
    if (depth > 4) return isArray(v) ? "[…]" : "{…}";
    const toJSON = ownToJSON(v);
    if (toJSON) return show(apply(toJSON, v, [""]), depth + 1);
    const names = keys(v);
    let text = "";
    for (let i = 0; i < names.length && text.length < LINE_MAX; i++) {
      text += (i ? ", " : "") + (isArray(v) ? "" : names[i] + ": ") + show(v[names[i]], depth + 1);
    }
    return isArray(v) ? "[" + text + "]" : "{" + text + "}";
  };
  const speak = (level) => freeze((...args) => {
    let text = "";
    for (let i = 0; i < args.length && text.length < LINE_MAX; i++) text += (i ? " " : "") + show(args[i], 0);
    host("log", level, cut(text, LINE_MAX));
  });
  fixed(globalThis, "console", freeze({
    log: speak("info"), info: speak("info"), warn: speak("warn"), error: speak("error"), debug: speak("debug"),
  }));

  // ---- errors --------------------------------------------------------------------------------------------

  const { isError } = Error;
  const nameOf = (e) => {
    const name = typeof e.name === "string" ? e.name : "Error";
    const message = typeof e.message === "string" ? e.message : "";
    return message ? name + ": " + message : name;
  };
  const textOf = (e) => {
    try {
      if (typeof e !== "object" || e === null) return typeof e === "function" ? "a function" : String(e);
      return isError(e) || typeof e.message === "string" ? nameOf(e) : show(e, 1);
    } catch {
      return "something that cannot be described";
    }
  };
  const describe = (e) => host("threw", cut(textOf(e), TEXT_MAX), isError(e) ? cut(stackOf(e), 4000) : "");

  // Stack traces are ours: locations in messages must not be the script's to write or to run code in.
  traceMany();
  const inert = (value) => record({ get: () => value, set: () => {}, enumerable: false, configurable: false });
  defineProperty(Error, "prepareStackTrace", inert(undefined));
  defineProperty(Error, "stackTraceLimit", inert(FRAMES_MAX));

  // ---- chance and time -----------------------------------------------------------------------------------

  // sfc32, seeded when a step, or an item in it, first asks: Math.random of QuickJS would be the same in every copy of
  // the image.
  const unseeded = () => record({ a: 0, b: 0, c: 0, d: 1, seeded: false });
  let chance = unseeded();
  const draw = (s) => {
    const t = (((s.a + s.b) | 0) + s.d) | 0;
    s.d = (s.d + 1) | 0;
    s.a = s.b ^ (s.b >>> 9);
    s.b = (s.c + (s.c << 3)) | 0;
    s.c = ((s.c << 21) | (s.c >>> 11)) + t | 0;
    return t >>> 0;
  };
  const seed = (s, text) => {
    const words = parse(text);
    s.seeded = true;
    s.a = words[0] | 0; s.b = words[1] | 0; s.c = words[2] | 0; s.d = imul(words[3], 1);
    for (let i = 0; i < 12; i++) draw(s);
  };
  defineProperty(Math, "random", record({
    value: () => {
      const s = chance;
      if (!s.seeded) seed(s, host("seed", ""));
      return ((draw(s) >>> 5) * 67108864 + (draw(s) >>> 6)) / 9007199254740992;
    },
    writable: true, enumerable: false, configurable: true,
  }));
  // Threads, a finer clock, and what would show when memory is collected.
  delete globalThis.SharedArrayBuffer;
  delete globalThis.performance;
  delete globalThis.WeakRef;
  delete globalThis.FinalizationRegistry;

  // ---- Keep ----------------------------------------------------------------------------------------------

  const declared = (declaration) => {
    if (typeof declaration !== "object" || declaration === null) throw new TypeError("Keep.workflow takes an object.");
    mark(marked, declaration);
    return declaration;
  };
  fixed(globalThis, "Keep", freeze({ workflow: declared, consumer: (declaration) => declaration }));

  const own = (owner, key) =>
    (typeof owner === "object" && owner !== null && hasOwn(owner, key) ? owner[key] : undefined);
  // Step → the member of the workflow and that of the handler, by the numbers that the worker gives them.
  const GROUPS = ["producers", "consumers", "consumers", "consumers", "routines"];
  const METHODS = ["handler", "prepare", "mutate", "next", "handler"];
  const begin = (step, name, args) => {
    if (workflow === undefined) {
      host("wrong", "The script's default export is not a Keep.workflow({…}); write `export default Keep.workflow({…})`.", "");
    }
    if (step < 0) return host("="); // it was only to be loaded
    const group = GROUPS[step];
    const method = METHODS[step];
    const handler = own(own(workflow, group), name);
    if (handler === undefined) host("wrong", "The script has no " + group + "." + name + ".", "");
    const bare = typeof handler === "function" && method === "handler";
    const work = bare ? handler : own(handler, method);
    if (typeof work !== "function") host("wrong", group + "." + name + "." + method + " is not a function.", "");
    drive(work, bare ? undefined : handler, args);
  };
  const drive = async (work, owner, args) => {
    let result;
    try {
      result = await apply(work, owner, args);
    } catch (e) {
      describe(e);
    }
    host("=" + (encode(result, "", 0, 1, "") ?? ""));
  };

  // A step: `ready` after the script was loaded, possibly in the image; `start` in every step.
  let workflow, members, ctx, given; // no workflow: the script exports none
  const ready = (namespace, text) => {
    const setting = parse(text);
    const exported = own(namespace, "default");
    if (typeof exported === "object" && exported !== null && isMarked(marked, exported)) workflow = exported;
    operations = setting.operations;
    messageMax = setting.messageMax;
    for (let i = 0; i < setting.names.length; i++) {
      const name = setting.names[i];
      first[name] = "{" + quote(name) + ":";
      after[name] = "," + quote(name) + ":";
    }
    members = allMembers();
    ctx = contents(members);
    given = closed(ctx, "");
  };
  // The text is a list: the step's number, the handler's name, whether there is a state (0, 1: it is undefined, 2), the
  // state, the arguments with a place for ctx before them, the places of those that are undefined, and those of large
  // values that are left out. What is written here are own members that the lists have, so that no setter on a
  // prototype is met.
  const start = (text) => {
    const job = parse(text);
    if (job[2]) fixed(ctx, "state", members.state = job[2] === 2 ? deepFreeze(job[3]) : undefined);
    preventExtensions(ctx); // its members are fixed, so it is frozen now
    const args = filled(job[4], job[6]);
    const absent = job[5];
    args[0] = given;
    for (let i = 0; i < absent.length; i++) args[absent[i]] = undefined;
    begin(job[0], job[1], args);
  };

  return { ready, start, settle, describe, trace: here };
})();
