// Folded text. A press on what is left out shows all of it. Nothing is approved whose text is folded still: the first press on
// Approve, or its key, unfolds it and says so; of a long change it shows the next part.
import { hasHiddenSpace, showSpace } from "./diffs.js";
import { looksNew } from "./steady.js";
import { quietly } from "./say.js";

const foldsIn = (root) => [...root.querySelectorAll("[data-folded]")];

function unfold(fold) {
  fold.querySelector("[data-short]").remove();
  fold.querySelector("[data-whole]").hidden = false;
  delete fold.dataset.folded;
}

// What a button answers for: a changed file of many, or a card. The whole of many files is no text: what is folded among them isn't
// approved with the rest.
function answeredBy(button) {
  return button.closest("[data-file], .card:not(.changes)");
}

// Whether there was something to unfold, which a person has to read before they approve.
function unfoldFirst(button) {
  const about = answeredBy(button);
  if (about && about.querySelector("[data-loading]")) {
    quietly("What changes in it is still being loaded. Look at it, then approve.");
    about.scrollIntoView({ block: "center" });
    return true;
  }
  const whole = about ?? button.closest(".card");
  if (whole && hasHiddenSpace(whole)) return showHidden(whole);
  const folds = about ? foldsIn(about) : [];
  const more = about ? about.querySelector("[data-show-all]") : null;
  if (!folds.length) return more !== null && showNext(about, more);
  for (const fold of folds) unfold(fold);
  const card = about.closest(".card");
  looksNew(card);
  folds[0].scrollIntoView({ block: "start" });
  quietly("All of its text is shown now. Read it, then approve.");
  return true;
}

// The changes of white space that a switch hides; that there were some.
function showHidden(about) {
  looksNew(about.closest(".card"));
  showSpace(true);
  about.querySelector(".diff .space").scrollIntoView({ block: "center" });
  quietly("Changes of white space were hidden. They are shown now, and are part of it: read them, then approve.");
  return true;
}

// The next part of a long change; that there was one.
function showNext(about, more) {
  looksNew(about.closest(".card"));
  more.scrollIntoView({ block: "center" });
  more.click();
  quietly("More of the change is shown now. Read it, then approve.");
  return true;
}

export function watchFolds() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-unfold]");
    if (!button) return;
    event.preventDefault(); // in a line that opens and closes, it does neither
    const fold = button.closest("[data-folded]");
    const card = fold.closest(".card");
    const hadFocus = document.activeElement === button;
    unfold(fold);
    if (card) looksNew(card);
    if (card && hadFocus) card.focus({ preventScroll: true });
  });
  document.addEventListener("htmx:confirm", (event) => {
    if (!("approves" in event.detail.elt.dataset) || !unfoldFirst(event.detail.elt)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-tick]") && target.checked && unfoldFirst(target)) target.checked = false;
  });
}
