// Shows times in the reader's own zone: a time of day with its date where that is not today. The server writes its own.
"use strict";

window.keepTimes = (() => {
  const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const year = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
  const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const two = (number, width = 2) => String(number).padStart(width, "0");

  function clock(then, now) {
    const time = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}.${two(then.getMilliseconds(), 3)}`;
    if (then.toDateString() === now.toDateString()) return time;
    return `${(then.getFullYear() === now.getFullYear() ? day : year).format(then)}, ${time}`;
  }

  function localise(part) {
    const now = new Date(document.body.dataset.now ? Number(document.body.dataset.now) : Date.now());
    for (const each of part.querySelectorAll("time[datetime]")) {
      const then = new Date(each.dateTime);
      each.title = whole.format(then);
      if (each.classList.contains("clock")) each.textContent = clock(then, now);
    }
  }

  localise(document);
  document.addEventListener("htmx:load", (event) => localise(event.target.parentElement ?? document));
  return localise;
})();
