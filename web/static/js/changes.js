// Many changed files of one session as one card: keeps what a person opened and ticked. What is shown goes back with each answer; the
// server refuses an answer to anything else.

export function watchChanges() {
  document.addEventListener("htmx:configRequest", (event) => {
    const card = event.detail.elt.closest(".changes");
    if (!card) return;
    const opened = [...card.querySelectorAll("details[data-folder][open]")].map((one) => one.dataset.folder).join(",");
    const ticked = [...card.querySelectorAll("[data-tick]:checked")].map((one) => one.dataset.tick).join(",");
    if (event.detail.verb === "post") Object.assign(event.detail.parameters, { open: opened, ticked });
    else if ("reload" in event.detail.elt.dataset) event.detail.parameters.opened = opened;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const card = event.detail.elt.matches && event.detail.elt.matches(".changes") ? document.querySelector(".changes") : null;
    if (!card) return;
    if (!document.activeElement || document.activeElement === document.body) card.focus({ preventScroll: true });
  });
}
