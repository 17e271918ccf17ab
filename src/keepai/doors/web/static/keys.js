// Keys: / searches, Ctrl-K opens the palette, ? lists all keys, j and k go through questions and rows, digits choose an
// answer. While somebody types, only Ctrl-K and Escape mean anything.
"use strict";

(() => {
  const GO = { h: "/", n: "/needs-you", i: "/inputs", o: "/outputs", r: "/runs", s: "/search" };
  const palette = document.getElementById("palette"), keys = document.getElementById("keys");
  if (!palette) return;
  const typed = palette.querySelector("input"), list = palette.querySelector("ul");
  let entries = [], shown = [], at = 0, went = false;

  const typing = (target) => target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");

  // -- the palette

  async function open() {
    palette.showModal();
    typed.value = "";
    draw();
    const answer = await fetch("/palette", { cache: "no-store" });
    if (answer.ok) { entries = await answer.json(); draw(); }
  }

  function fits(entry, words) {
    const text = `${entry.label} ${entry.kind}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function draw() {
    const text = typed.value.trim(), words = text.toLowerCase().split(/\s+/).filter(Boolean);
    shown = entries.filter((entry) => fits(entry, words)).slice(0, 40);
    if (text) shown.push({ label: `Search for “${text}”`, kind: "search", href: `/search?text=${encodeURIComponent(text)}` });
    at = 0;
    list.replaceChildren(...shown.map((entry, place) => {
      const row = document.createElement("li"), label = document.createElement("span"), kind = document.createElement("span");
      row.id = `palette-${place}`;
      row.setAttribute("role", "option");
      label.textContent = entry.label;
      kind.textContent = entry.kind;
      row.append(label, kind);
      row.addEventListener("click", () => go(entry));
      return row;
    }));
    mark();
  }

  function mark() {
    [...list.children].forEach((row, place) => row.setAttribute("aria-selected", String(place === at)));
    typed.setAttribute("aria-activedescendant", shown.length ? `palette-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function go(entry) {
    if (!entry) return;
    palette.close();
    if (entry.href) { location.assign(entry.href); return; }
    const form = document.createElement("form");
    form.method = "post";
    form.action = "/act";
    for (const [name, value] of Object.entries({ ...entry.act, back: location.pathname + location.search })) {
      const field = document.createElement("input");
      field.type = "hidden";
      field.name = name;
      field.value = value;
      form.append(field);
    }
    document.body.append(form);
    form.requestSubmit();
  }

  typed.addEventListener("input", draw);
  typed.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { at = (at + step + shown.length) % Math.max(1, shown.length); mark(); event.preventDefault(); }
    if (event.key === "Enter") { go(shown[at]); event.preventDefault(); }
  });

  // -- everything else

  function step(by) {
    const rows = [...document.querySelectorAll(".questions a[data-question], .list th[scope=row] > a, .flows th[scope=row] > a")];
    if (!rows.length) return;
    const now = rows.findIndex((row) => row === document.activeElement || row.getAttribute("aria-current") === "true");
    const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
    if (next.dataset.question) location.assign(next.href);
    else next.focus();
  }

  function choose(number) {
    const answer = document.querySelectorAll(".answers .plain-answer button, .answers .sure > summary")[number - 1];
    if (!answer) return;
    const risky = answer.closest("details.sure");
    if (!risky) { answer.focus(); return; }
    risky.open = true;
    (risky.querySelector("textarea") ?? risky.querySelector("button")).focus();
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); if (!palette.open) open(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    const after = went;
    went = event.key === "g";
    if (after && GO[event.key]) { event.preventDefault(); location.assign(GO[event.key]); return; }
    if (event.key === "/") { event.preventDefault(); document.getElementById("find").select(); }
    else if (event.key === "?") { event.preventDefault(); keys.showModal(); }
    else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else if (event.key >= "1" && event.key <= "9") choose(Number(event.key));
  });
})();
