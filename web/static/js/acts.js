// A review's card: its button says how many findings are posted, what is left out is muted, and what
// was edited says so. What is posted is what the server reads from the form.

const boxes = (act) => [...act.querySelectorAll("[data-finding] input[type=checkbox]")];

function label(act, kept, total) {
  const kind = act.dataset.operation;
  if (kind !== "post") return kind === "reply" ? "Post reply" : "Post comment";
  if (!total) return "Post review";
  if (!kept) return "Post review without findings";
  return kept === total ? `Post ${total} finding${total === 1 ? "" : "s"}` : `Post ${kept} of ${total} findings`;
}

function question(act, kept) {
  if (act.dataset.operation !== "post") return null;
  const what = kept ? ` with ${kept} comment${kept === 1 ? "" : "s"}` : "";
  return `Post a review${what} on ${act.dataset.on}?`;
}

function show(act) {
  const found = boxes(act);
  for (const box of found) {
    const bubble = box.closest("[data-finding]");
    bubble.classList.toggle("off", !box.checked);
    bubble.querySelector("[data-role=off]").hidden = box.checked;
  }
  const kept = found.filter((box) => box.checked).length;
  const card = act.closest("[data-request]");
  const button = card?.querySelector("[data-approves]");
  if (button?.firstChild) button.firstChild.textContent = label(act, kept, found.length);
  const asked = card?.querySelector(".answer-what strong");
  const words = question(act, kept);
  if (asked && words) asked.textContent = words;
}

function showEdited(field) {
  const badge = field.closest("[data-role=words]")?.querySelector("[data-role=edited]");
  if (badge) badge.hidden = field.value === field.defaultValue;
}

// What would be posted is on the page: from here on it can be.
function open(act) {
  const button = act.closest("[data-request]")?.querySelector("[data-awaits]");
  if (button && document.querySelector(button.dataset.awaits)) button.disabled = false;
}

export function watchActs() {
  document.addEventListener("htmx:load", ({ target }) => {
    if (target.matches("[data-role=act]")) open(target);
  });
  document.addEventListener("change", (event) => {
    const act = event.target.closest("[data-role=act]");
    if (act && event.target.type === "checkbox") show(act);
  });

  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-role=act] textarea")) showEdited(event.target);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-role=act] [data-tick], [data-role=act] [data-reset]");
    if (!button) return;
    const act = button.closest("[data-role=act]");
    if ("tick" in button.dataset) {
      for (const box of boxes(act)) box.checked = button.dataset.tick === "all";
      boxes(act)[0].dispatchEvent(new Event("change", { bubbles: true })); // the summary counts them
      return;
    }
    const field = button.closest(".edit").querySelector("textarea");
    field.value = field.defaultValue;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
