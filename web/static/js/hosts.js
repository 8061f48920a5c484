// The hosts of the Network tab. The list has a line for each; what went to one comes with the list while it is open.
import { fire, networkShown } from "./live.js";

const opened = (list) => [...list.querySelectorAll("details.host[open]")].map((one) => one.dataset.keep);

export function watchHosts() {
  const list = document.getElementById("network");
  if (!list) return;
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (detail.elt === list) detail.parameters.opened = opened(list);
  });
  // `toggle` doesn't bubble.
  list.addEventListener("toggle", ({ target }) => {
    if (target.matches("details.host[open]") && !target.querySelector("table")) fire("network");
  }, true);
  let began = 0;
  list.addEventListener("htmx:beforeSwap", () => { began = performance.now(); });
  // Until it is painted.
  list.addEventListener("htmx:afterSwap", () => requestAnimationFrame(() => setTimeout(() => networkShown(performance.now() - began))));
}
