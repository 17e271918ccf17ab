// The token of this session. Signing in hands it out once; this keeps it where only pages of this very address (name and
// port) can read it, and puts it into each form that does something. No cookie and no other page carries it, so a program
// that got hold of the cookie cannot act with it.
"use strict";

(() => {
  const NAME = "keep.token", fresh = document.body.dataset.token;
  addEventListener("formdata", (event) => {
    if (event.target.getAttribute("method") === "post") event.formData.set("csrf", localStorage.getItem(NAME) ?? "");
  });
  if (fresh) {
    localStorage.setItem(NAME, fresh);
    location.replace("/");
  }
})();
