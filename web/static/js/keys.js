// The keyboard: the inbox has keys of its own, a key of a card presses what carries it in `data-key`, and a number ticks that change
// of its file.
import { tickNumber } from "./hunks.js";
import { pressed } from "./inbox.js";
import { $ } from "./say.js";
import { mayAnswer } from "./steady.js";

export function watchKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || $("confirm").open) return;
    const card = (event.target.closest && event.target.closest(".card")) || document.querySelector(".pane.card");
    if (event.key === "Escape" && card) {
      const menu = card.querySelector("details.menu[open]");
      if (menu) menu.open = false;
      (menu ? menu.querySelector("summary") : card).focus({ preventScroll: true });
      if (menu) return;
    }
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && !/^(checkbox|radio)$/.test(event.target.type)) {
      // Enter where a reason was typed denies, since a reason is only ever for a denial.
      if (event.key === "Enter" && event.target.dataset.key === "r") press(event, card, "d");
      return;
    }
    if (event.key === "z") $("done")?.querySelector("[data-undo-now]")?.click();
    else if (pressed(event.key)) event.preventDefault();
    else if (card && /^[1-9]$/.test(event.key)) tick(event, card);
    else if (card && /^[adrAmg]$/.test(event.key)) press(event, card, event.key);
  });
}

function press(event, card, key) {
  const found = card && card.querySelector(`[data-key="${key}"]:not([hidden])`);
  if (!found) return;
  event.preventDefault();
  if (found.tagName === "INPUT") found.focus();
  else if (mayAnswer(card, event)) found.click();
}

function tick(event, card) {
  if (!card.matches(".changes") && card.querySelector("input[data-hunk]") && mayAnswer(card, event) && tickNumber(card, event.key)) event.preventDefault();
}
