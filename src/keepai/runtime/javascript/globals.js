// Small conveniences that scripts expect of any JavaScript and QuickJS does not have.
// They are ordinary script code: what a script does to them it does to itself. Absent on purpose: timers,
// fetch, crypto, Intl; URL knows absolute URLs only and resolves nothing.
(function () {
  "use strict";
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });

  define("structuredClone", (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value))));

  define("TextEncoder", class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") {
      const escaped = encodeURIComponent(String(text).toWellFormed());
      const bytes = new Uint8Array(escaped.length);
      let size = 0;
      for (let i = 0; i < escaped.length; i++) {
        const isEscape = escaped[i] === "%";
        bytes[size++] = isEscape ? parseInt(escaped.slice(i + 1, i + 3), 16) : escaped.charCodeAt(i);
        if (isEscape) i += 2;
      }
      return bytes.slice(0, size);
    }
  });

  define("TextDecoder", class TextDecoder {
    constructor(label = "utf-8") {
      if (!/^utf-?8$/i.test(label)) throw new RangeError(`TextDecoder knows utf-8 only, not ${label}`);
    }
    get encoding() { return "utf-8"; }
    decode(input = new Uint8Array()) {
      const bytes = ArrayBuffer.isView(input)
        ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength) : new Uint8Array(input);
      let text = "";
      let at = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
      while (at < bytes.length) {
        const [code, size] = decodeOne(bytes, at);
        text += String.fromCodePoint(code);
        at += size;
      }
      return text;
    }
  });
  // One code point and its size; what is not UTF-8 becomes U+FFFD, one byte or broken sequence at a time.
  const decodeOne = (bytes, at) => {
    const lead = bytes[at];
    if (lead < 0x80) return [lead, 1];
    const size = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
    let code = lead & (0x7f >> size);
    let read = 1;
    for (; read < size && (bytes[at + read] & 0xc0) === 0x80; read++) code = (code << 6) | (bytes[at + read] & 0x3f);
    const least = [0, 0, 0x80, 0x800, 0x10000][size];
    const sound = size > 1 && read === size && code >= least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return sound ? [code, size] : [0xfffd, size > 1 && read < size ? read : 1];
  };

  const plus = (text) => encodeURIComponent(text).replace(/%20/g, "+").replace(/[!'()~]/g,
    (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
  const unplus = (text) => {
    try { return decodeURIComponent(text.replace(/\+/g, " ")); } catch { return text; }
  };
  class URLSearchParams {
    #pairs = [];
    constructor(init = "") {
      if (typeof init === "object" && init !== null) {
        const entries = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
        for (const [key, value] of entries) this.append(key, value);
        return;
      }
      for (const part of String(init).replace(/^\?/, "").split("&")) {
        if (!part) continue;
        const border = part.indexOf("=");
        this.append(unplus(border < 0 ? part : part.slice(0, border)), border < 0 ? "" : unplus(part.slice(border + 1)));
      }
    }
    append(key, value) { this.#pairs.push([String(key), String(value)]); }
    delete(key) { this.#pairs = this.#pairs.filter((pair) => pair[0] !== key); }
    get(key) { return this.#pairs.find((pair) => pair[0] === key)?.[1] ?? null; }
    getAll(key) { return this.#pairs.filter((pair) => pair[0] === key).map((pair) => pair[1]); }
    has(key) { return this.#pairs.some((pair) => pair[0] === key); }
    set(key, value) {
      const first = this.#pairs.find((pair) => pair[0] === key);
      if (!first) return this.append(key, value);
      first[1] = String(value);
      this.#pairs = this.#pairs.filter((pair) => pair[0] !== key || pair === first);
    }
    sort() { this.#pairs.sort((x, y) => (x[0] < y[0] ? -1 : x[0] > y[0] ? 1 : 0)); }
    forEach(visit) { for (const [key, value] of this.#pairs) visit(value, key, this); }
    keys() { return this.#pairs.map((pair) => pair[0]).values(); }
    values() { return this.#pairs.map((pair) => pair[1]).values(); }
    entries() { return this.#pairs.map((pair) => [...pair]).values(); }
    [Symbol.iterator]() { return this.entries(); }
    get size() { return this.#pairs.length; }
    toString() { return this.#pairs.map(([key, value]) => `${plus(key)}=${plus(value)}`).join("&"); }
  }
  define("URLSearchParams", URLSearchParams);

  const SHAPE = /^([a-z][a-z0-9+.-]*:)\/\/(?:([^/?#@:]*)(?::([^/?#@]*))?@)?(\[[0-9a-f:.]+\]|[^/?#:@\s]+)(?::(\d{1,5}))?([^?#]*)(\?[^#]*)?(#.*)?$/i;
  const PORTS = { "http:": "80", "https:": "443", "ftp:": "21", "ws:": "80", "wss:": "443" };
  define("URL", class URL {
    constructor(text) {
      const parts = SHAPE.exec(String(text).trim());
      if (!parts) throw new TypeError(`Invalid URL: ${String(text).slice(0, 200)}`);
      this.protocol = parts[1].toLowerCase();
      this.username = parts[2] ?? "";
      this.password = parts[3] ?? "";
      this.hostname = parts[4].toLowerCase();
      this.port = parts[5] && parts[5] !== PORTS[this.protocol] ? parts[5] : "";
      this.pathname = encodeURI(unescapeSafely(parts[6])) || "/";
      this.hash = parts[8] && parts[8] !== "#" ? parts[8] : "";
      this.searchParams = new URLSearchParams(parts[7] ?? "");
      this.#search = parts[7] && parts[7] !== "?" ? parts[7] : "";
      this.#query = this.searchParams.toString();
    }
    #search;
    #query; // as the parameters stood at first: while they stand so, the text is kept as it was written
    get search() {
      const now = this.searchParams.toString();
      return now === this.#query ? this.#search : now && `?${now}`;
    }
    get host() { return this.port ? `${this.hostname}:${this.port}` : this.hostname; }
    get origin() { return `${this.protocol}//${this.host}`; }
    get href() {
      const password = this.password && `:${this.password}`;
      const user = this.username || this.password ? `${this.username}${password}@` : "";
      return `${this.protocol}//${user}${this.host}${this.pathname}${this.search}${this.hash}`;
    }
    toString() { return this.href; }
    toJSON() { return this.href; }
    static canParse(text) { return SHAPE.test(String(text).trim()); }
  });
  const unescapeSafely = (path) => { try { return decodeURI(path); } catch { return path; } };
})();
