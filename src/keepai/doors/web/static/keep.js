// Keeps an open page true: when the ledger changed, the page is fetched again, and each part marked data-live that
// is no longer the same takes the place of the old one. A part in which somebody types, has the focus or has marked
// text is left alone until they are done. A hidden page listens to nothing: browsers allow few open streams.
"use strict";

(() => {
  const PAUSE_MS = 250, AGAIN_MS = 1000;
  let stream = null, lost = false, fetching = false, stale = false, seen = document.body.dataset.seen;

  function busy(part) {
    const at = document.activeElement;
    if (at && at !== part && part.contains(at) && at.matches("input, select, textarea, button, summary")) return true;
    if ([...part.querySelectorAll("form")].some(isTyped)) return true;
    const marked = document.getSelection();
    return Boolean(marked && !marked.isCollapsed && part.contains(marked.anchorNode));
  }

  function isTyped(form) {
    return [...form.elements].some((field) =>
      field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
        : field.tagName === "SELECT" ? [...field.options].some((o) => o.selected !== o.defaultSelected) && !form.dataset.filter
          : "defaultValue" in field && field.value !== field.defaultValue);
  }

  function replace(old, fresh) {
    const open = [...old.querySelectorAll("details[id]")].filter((each) => each.open).map((each) => each.id);
    for (const each of fresh.querySelectorAll("details[id]")) if (open.includes(each.id)) each.open = true;
    window.keepTimes?.(fresh);
    if (old.isEqualNode(fresh)) return;
    const focused = old.contains(document.activeElement) && document.activeElement.getAttribute("href");
    old.replaceWith(document.adoptNode(fresh));
    window.htmx?.process(fresh);
    if (focused) [...fresh.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
  }

  async function refresh() {
    if (fetching || document.hidden) { stale = true; return; }
    fetching = true;
    stale = false;
    try {
      const answer = await fetch(location.href, { headers: { "X-Keep-Live": "1" }, cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      seen = page.body.dataset.seen ?? seen;
      for (const old of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(old.id);
        if (fresh && busy(old)) stale = true;
        else if (fresh) replace(old, fresh);
      }
      reachable(true);
    } catch {
      reachable(false);
    } finally {
      fetching = false;
      if (stale) setTimeout(refresh, AGAIN_MS);
    }
  }

  function reachable(yes) {
    document.getElementById("offline").hidden = yes;
  }

  function listen() {
    if (stream || document.hidden) return;
    stream = new EventSource("/live?seen=" + encodeURIComponent(seen));
    stream.addEventListener("open", () => { reachable(true); if (lost) refresh(); lost = false; });
    stream.addEventListener("changed", () => setTimeout(refresh, PAUSE_MS / 5));
    stream.addEventListener("error", () => {
      lost = true;  // another host may answer next, and count changes afresh
      reachable(false);
      if (stream.readyState === EventSource.CLOSED) { leave(); setTimeout(refresh, AGAIN_MS); setTimeout(listen, 2 * AGAIN_MS); }
    });
  }

  function leave() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", listen);
  listen();
})();
