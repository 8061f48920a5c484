// Ticked changes of a file. All are ticked at first; once one isn't, "Approve" means those that are and nothing else. What a person
// ticked, typed and wrote on lines goes on to the card that takes the place of theirs, as far as the changes read the same there.
import { commentsOf, moveComments, showComments } from "./comments.js";

export const boxes = (card) => [...card.querySelectorAll("input[data-hunk]")];
export const ticked = (card) => boxes(card).filter((box) => box.checked && !box.disabled);
const hasChosen = (card) => boxes(card).some((box) => !box.checked);

// A rule answers for a whole change, and says nothing to the agent.
function shutAlways(card) {
  const form = card.querySelector(".always-form");
  if (!form) return;
  const why = "approves" in form.dataset && hasChosen(card) ? "A rule approves the whole change: tick all of it first." : commentsOf(card.dataset.request).length ? "Your comments don't go with a rule: remove them first, or deny with them." : "";
  form.querySelector("[type=submit]").disabled = Boolean(why);
  const note = form.querySelector('[data-role="always-shut"]');
  note.textContent = why;
  note.hidden = !why;
}

// The buttons of a card as its ticks say.
function showTicks(card) {
  shutAlways(card);
  const part = card.querySelector("[data-part]");
  if (!part) return;
  const isPart = hasChosen(card);
  const whole = card.querySelector('[data-key="a"]:not([data-part])');
  const hadFocus = document.activeElement === part || document.activeElement === whole;
  part.hidden = !isPart;
  whole.hidden = isPart;
  card.querySelector('[data-role="rest"]').hidden = !isPart;
  const chosen = ticked(card).length;
  part.disabled = isPart && !chosen;
  part.textContent = `Approve ${chosen} of ${boxes(card).length} changes`;
  if (hadFocus) (isPart ? part : whole).focus({ preventScroll: true });
}

// A number key: tick that change of the card, or take the tick away. Whether there is one.
export function tickNumber(card, number) {
  const box = card.querySelector(`input[data-hunk][data-number="${number}"]:not(:disabled)`);
  if (!box) return false;
  box.click();
  box.closest(".hunk").scrollIntoView({ block: "nearest" });
  return true;
}

// Puts a newer card in the place of one that still waits. How many ticks that had by choice, and how many the newer one keeps.
export function takePlace(old, card) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const chosen = choice(old);
  for (const [name, field] of [["value", '[data-key="r"]'], ["checked", 'input[data-rest][value="drop"]']]) {
    const [was, is] = [old, card].map((one) => one.querySelector(field));
    if (was && is) is[name] = was[name];
  }
  const kept = tickAgain(card, chosen);
  keepTicks(card);
  moveComments(old, card);
  const top = old.querySelector(".pane-scroll").scrollTop;
  old.replaceWith(card);
  showComments(card);
  if (focused) (twin(card, focused) || card).focus({ preventScroll: true });
  card.querySelector(".pane-scroll").scrollTop = top;
  const more = card.querySelector("[data-show-all]");
  if (more && old.querySelector(".file") && !old.querySelector("[data-show-all]")) {
    toTick.set(card, chosen);
    queueMicrotask(() => more.click());
  }
  return { had: chosen ? chosen.length : 0, kept };
}

// What a newer card has in the place of what had the focus.
function twin(card, focused) {
  const { hunk, key } = focused.dataset;
  if (hunk) return card.querySelector(`input[data-hunk="${CSS.escape(hunk)}"]:not(:disabled)`);
  if (key) return card.querySelector(`[data-key="${CSS.escape(key)}"]:not([hidden])`);
  return focused.matches(".file") ? card.querySelector(".file") : null;
}

// What a person chose: the names of what is ticked; null where they didn't choose.
const choice = (card) => (hasChosen(card) ? ticked(card).map((box) => box.dataset.hunk) : null);
// A choice that is made again once a card's whole diff is there.
const toTick = new WeakMap();

// Nothing that wasn't there when they chose is ticked.
function tickAgain(card, chosen) {
  if (chosen) for (const box of boxes(card)) box.checked = chosen.includes(box.dataset.hunk);
  showTicks(card);
  return chosen ? ticked(card).length : 0;
}

// What lost its tick stays so when the page is loaded anew, in this tab.
const keyOf = (change) => `hunks:${change.dataset.say}`;
const changesIn = (part) => [...part.querySelectorAll("[data-say]"), part.closest("[data-say]")].filter(Boolean);

export function keepTicks(part) {
  for (const change of changesIn(part)) {
    const off = boxes(change).filter((box) => !box.checked).map((box) => box.dataset.hunk);
    if (off.length) sessionStorage.setItem(keyOf(change), JSON.stringify(off));
    else sessionStorage.removeItem(keyOf(change));
  }
}

export function restoreTicks(part) {
  for (const change of changesIn(part)) {
    const off = JSON.parse(sessionStorage.getItem(keyOf(change)) ?? "[]");
    for (const box of boxes(change)) if (off.includes(box.dataset.hunk)) box.checked = false;
  }
  const card = part.closest(".card");
  if (card) showTicks(card);
}

export function watchHunks() {
  document.addEventListener("change", (event) => {
    const box = event.target.closest && event.target.closest("input[data-hunk]");
    const card = box && box.closest(".card");
    if (!card) return;
    keepTicks(box);
    showTicks(card);
  });
  document.addEventListener("htmx:load", ({ target }) => restoreTicks(target));
  document.addEventListener("htmx:configRequest", (event) => {
    const button = event.detail.elt;
    if (!("part" in button.dataset)) return;
    const card = button.closest(".card");
    event.detail.parameters.hunks = ticked(card).map((box) => box.dataset.hunk).join(",");
    event.detail.parameters.rest = card.querySelector("input[data-rest]:checked").value;
  });
  // "Show the other lines" puts the whole diff in the place of its beginning: what was ticked stays, and what a person hadn't seen yet
  // is ticked as at first.
  document.addEventListener("htmx:beforeSwap", (event) => {
    // Among many files each keeps its own (`restoreTicks`): changes of two files may read the same.
    const card = event.detail.target.closest && event.detail.target.closest(".card:not(.changes)");
    if (!card || !event.detail.shouldSwap || toTick.has(card)) return;
    toTick.set(card, { off: boxes(card).filter((box) => !box.checked).map((box) => box.dataset.hunk) });
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const card = event.target.closest && event.target.closest(".card");
    if (card) shutAlways(card);
    if (!card || !toTick.has(card)) return;
    const was = toTick.get(card);
    if (was && was.off) {
      for (const box of boxes(card)) if (was.off.includes(box.dataset.hunk)) box.checked = false;
      showTicks(card);
    } else tickAgain(card, was);
    toTick.delete(card);
  });
  document.addEventListener("gatehouse:comments", () => { for (const card of document.querySelectorAll(".card[data-request]")) shutAlways(card); });
  // A page that was reloaded keeps its ticks in some browsers.
  for (const card of document.querySelectorAll(".card")) restoreTicks(card);
}
