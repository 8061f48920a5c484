// A card that has just changed answers nothing: what was pressed in that moment was meant for what was there before. It has changed
// where it arrived, was replaced by a newer version or shows other text, and for keys also where the focus came to it by itself. The
// moment begins when that is painted, and counts to when something was pressed, not to when a busy page got round to it.
import { quietly } from "./say.js";

export const STEADY_MS = 1000;

// Card -> since when it is as it is, in the time of events; endless until it is painted.
const since = new WeakMap();
const focused = new WeakMap();

function begin(times, card, what) {
  times.set(card, Infinity);
  if (card.dataset.settling !== "all") card.dataset.settling = what;
  requestAnimationFrame(() => setTimeout(() => {
    times.set(card, performance.now());
    setTimeout(() => {
      const last = Math.max(since.get(card) ?? 0, focused.get(card) ?? 0);
      if (performance.now() - last >= STEADY_MS) delete card.dataset.settling;
    }, STEADY_MS + 1);
  }));
}

export function looksNew(card) {
  begin(since, card, "all");
}

export function cameByItself(card) {
  begin(focused, card, "keys");
}

// Whether what was pressed may answer this card; where it may not, that is said.
export function mayAnswer(card, event) {
  const isKey = !event.detail; // a click by a key has none, as a key has
  const last = Math.max(since.get(card) ?? 0, isKey ? focused.get(card) ?? 0 : 0);
  if (event.timeStamp - last >= STEADY_MS) return true;
  quietly("This changed a moment ago, so nothing was answered. Look, then press again.");
  return false;
}

export function watchSteadiness() {
  for (const card of document.querySelectorAll('.card[data-status="pending"]')) looksNew(card);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-answer]");
    const card = button && button.closest(".card");
    if (!card || mayAnswer(card, event)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  const swapped = ({ target }) => {
    const card = target.closest && !target.closest(".news, .own-seen") && target.closest('.card[data-status="pending"]');
    if (card) looksNew(card);
  };
  document.addEventListener("htmx:afterSwap", swapped);
  document.addEventListener("htmx:oobAfterSwap", swapped);
}
