// The token of this session. Signing in hands it out once; this keeps it where only pages of this very address (name and
// port) can read it, and puts it into each form that does something. No cookie and no other page carries it, so a program
// that got hold of the cookie cannot act with it.
"use strict";

(() => {
  const NAME = "keep.token", WANTED = "keep.wanted", { token: fresh, wanted } = document.body.dataset;
  if (wanted) localStorage.setItem(WANTED, location.pathname + location.search);  // where somebody wanted to go who must sign in first
  addEventListener("formdata", (event) => {
    const isOurs = event.target.getAttribute("method") === "post" && !event.formData.get("csrf");  // signing in has its own
    if (isOurs) event.formData.set("csrf", localStorage.getItem(NAME) ?? "");
  });
  if (fresh) {
    const then = localStorage.getItem(WANTED) ?? "/";
    localStorage.removeItem(WANTED);
    localStorage.setItem(NAME, fresh);
    location.replace(new URL(then, location.origin).origin === location.origin ? then : "/");
  }
})();
