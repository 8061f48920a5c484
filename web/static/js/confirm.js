// A question before what can't be taken back. "All of a category" means the cards that are listed in the question: one that arrives
// while a person reads it isn't answered with them, and one whose text is folded isn't approved with them.
import { waitingCards } from "./cards.js";
import { hasFolds, shownText } from "./folds.js";
import { $, quietly, toast } from "./say.js";

const MOST_LISTED = 12;

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
    const list = listed(button);
    if (!list) return;
    asked = button;
    $("confirm-title").textContent = button.dataset.title || "Really?";
    $("confirm-text").textContent = event.detail.question;
    $("confirm-yes").textContent = button.dataset.yes || "Yes";
    $("confirm-yes").className = "danger" in button.dataset ? "danger" : "good";
    $("confirm-list").replaceChildren(...list);
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

// The lines of the question; null where nothing is left to ask about.
function listed(button) {
  if (!("bulk" in button.dataset)) return [];
  const all = waitingCards(button.closest("section"));
  const cards = "approves" in button.dataset ? all.filter((card) => !hasFolds(card)) : all;
  const folded = all.length - cards.length;
  if (!cards.length) {
    quietly("The text of each is folded. Show all of it, and approve them one by one.");
    return null;
  }
  button.dataset.shown = cards.map((card) => `${card.dataset.request}:${card.dataset.fingerprint}`).join(",");
  const items = cards.slice(0, MOST_LISTED).map((card) => {
    const item = line("li", shownText(card.querySelector('[data-role="action"]')));
    for (const warning of card.querySelectorAll('[data-role="warning"]')) item.append(line("span", shownText(warning)));
    return item;
  });
  if (cards.length > MOST_LISTED) items.push(line("li", `and ${cards.length - MOST_LISTED} more, as shown on the page`));
  if (folded) items.push(line("li", `${folded} ${folded === 1 ? "is" : "are"} left out: the text is folded, and has to be shown whole first`));
  return items;
}

function line(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}
