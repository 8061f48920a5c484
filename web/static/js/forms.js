// Forms of every page: the one that came takes the focus, what is typed chooses its own radio button, and none submits by itself.
import { $ } from "./say.js";

export function watchForms() {
  const begin = (box) => {
    const form = box && !box.contains(document.activeElement) && box.querySelector("form");
    const first = form && (form.querySelector("input[name=rule]:checked") || form.querySelector("input:not([type=hidden])"));
    if (first) first.focus();
  };
  // Only when htmx has taken the form over: until then it submits by itself.
  document.addEventListener("htmx:afterSettle", ({ target }) => begin(target.matches && target.matches(".always") && target));
  document.addEventListener("toggle", ({ target }) => begin(target.open && target.querySelector(".always")), true);
  document.addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method !== "dialog") event.preventDefault();
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset.own) $(event.target.dataset.own).checked = true;
  });
}
