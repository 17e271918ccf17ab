// What somebody typed into a form is there again if the act was refused. It stays in this tab, and only until then.
"use strict";

(() => {
  const NAME = "keep.typed";
  const own = (form) => [...form.elements].filter((field) => field.name && field.type !== "hidden" && field.type !== "submit");
  const key = (form) => [...form.elements].filter((field) => field.type === "hidden" && (field.name === "act" || field.name.startsWith("p.")) && field.name !== "p.shown")
    .map((field) => `${field.name}=${field.value}`).join("&");

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.getAttribute("action") !== "/act" || !own(form).length) return;
    const values = own(form).map((field) => [field.name, field.value]);
    sessionStorage.setItem(NAME, JSON.stringify({ key: key(form), values }));
  });

  const kept = sessionStorage.getItem(NAME);
  sessionStorage.removeItem(NAME);
  if (!kept || !document.querySelector(".note.refused[role=alert]")) return;
  const { key: wanted, values } = JSON.parse(kept);
  const form = [...document.querySelectorAll("form[action='/act']")].find((each) => key(each) === wanted && own(each).length);
  if (!form) return;
  for (const [name, value] of values) if (form.elements[name] && form.elements[name].type !== "checkbox") form.elements[name].value = value;
  for (let part = form.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  own(form)[0].focus();
})();
