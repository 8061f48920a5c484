// A question before what can't be taken back. "All of a category" means the cards that are listed in the question: one that arrives
// while a person reads it isn't answered with them.
import { waitingCards } from "./cards.js";
import { $, toast } from "./say.js";

const MOST_LISTED = 12;
const MOST_CHARS = 200;

// What a person is being asked about: its part of the page stays as it is until they answer.
let asked = null;
export const isAskedIn = (part) => part.contains(asked);

export function watchConfirmations() {
  const dialog = $("confirm");
  let go = null;
  document.addEventListener("htmx:confirm", (event) => {
    if (!event.detail.question) return;
    event.preventDefault();
    const button = event.detail.elt;
    asked = button;
    $("confirm-title").textContent = button.dataset.title || "Really?";
    $("confirm-text").textContent = event.detail.question;
    $("confirm-yes").textContent = button.dataset.yes || "Yes";
    $("confirm-yes").className = "danger" in button.dataset ? "danger" : "good";
    $("confirm-list").replaceChildren(...listed(button));
    go = () => event.detail.issueRequest(true);
    dialog.returnValue = "no";
    dialog.showModal();
  });
  dialog.addEventListener("close", () => {
    const [wanted, button] = [go, asked];
    go = asked = null;
    if (dialog.returnValue !== "yes" || !wanted) return;
    if (button.isConnected) wanted();
    else toast("What you were asked about isn't here any more. Nothing was done: look again.");
  });
  document.addEventListener("htmx:configRequest", (event) => {
    const button = event.detail.elt;
    if ("bulk" in button.dataset) event.detail.parameters.shown = button.dataset.shown || "";
  });
}

function listed(button) {
  if (!("bulk" in button.dataset)) return [];
  const cards = waitingCards(button.closest("section"));
  button.dataset.shown = cards.map((card) => `${card.dataset.request}:${card.dataset.fingerprint}`).join(",");
  const items = cards.slice(0, MOST_LISTED).map((card) => {
    const text = card.querySelector('[data-role="action"]').textContent;
    const item = line("li", text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}…` : text);
    for (const warning of card.querySelectorAll('[data-role="warning"]')) item.append(line("span", warning.textContent));
    return item;
  });
  if (cards.length > MOST_LISTED) items.push(line("li", `and ${cards.length - MOST_LISTED} more, as shown on the page`));
  return items;
}

function line(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}
