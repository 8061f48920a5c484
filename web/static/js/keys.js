// The keyboard: j and k walk through the waiting cards, a key of a card presses what carries it in `data-key`, and a number ticks
// that change of its file.
import { closeForm } from "./cards.js";
import { tickNumber } from "./hunks.js";
import { $ } from "./say.js";
import { mayAnswer } from "./steady.js";

export function watchKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || $("confirm").open) return;
    const card = event.target.closest && event.target.closest(".card");
    if (event.key === "Escape" && card) {
      const cancel = card.querySelector("[data-cancel]");
      if (!cancel || !closeForm(card, cancel.dataset.cancel)) card.focus();
      return;
    }
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && !/^(checkbox|radio)$/.test(event.target.type)) {
      // Enter where a reason was typed denies, since a reason is only ever for a denial.
      if (event.key === "Enter" && event.target.dataset.key === "r") press(event, card, "d");
      return;
    }
    if (event.key === "j" || event.key === "k") walk(event, card);
    else if (card && /^[1-9]$/.test(event.key)) tick(event, card);
    else if (card && /^[adrtsATSDmg]$/.test(event.key)) press(event, card, event.key);
  });
}

function walk(event, current) {
  const cards = [...document.querySelectorAll('.card[data-status="pending"]')];
  if (!cards.length) return;
  event.preventDefault();
  const step = event.key === "j" ? 1 : -1;
  const at = current ? cards.indexOf(current) : -1;
  const next = at < 0 && step < 0 ? cards.length - 1 : (at + step + cards.length) % cards.length;
  cards[next].focus({ preventScroll: true });
  cards[next].scrollIntoView({ block: "nearest" });
}

function press(event, card, key) {
  const found = card && card.querySelector(`[data-key="${key}"]:not([hidden])`);
  if (!found) return;
  event.preventDefault();
  if (found.tagName === "INPUT") found.focus();
  else if (mayAnswer(card, event)) found.click();
}

function tick(event, card) {
  if (card.querySelector("input[data-hunk]") && mayAnswer(card, event) && tickNumber(card, event.key)) event.preventDefault();
}
