// The waiting requests of the inbox and of a session's page. In each category those come first that somebody waits for still, and new ones
// at their end; answered ones shrink in place, and a newer version takes the place of the older with its ticks: a click or a key that a
// moved card would catch is dropped.
import { get } from "./get.js";
import { whenReleased } from "./press_guard.js";
import { takePlace } from "./hunks.js";
import { isInSet, waitingInSets } from "./changes.js";
import { $, say } from "./say.js";
import { STEADY_MS, cameByItself, looksNew } from "./steady.js";
import { now, tick } from "./time.js";

const MOST_CARDS = 60; // as many as the server starts a page with
const FEW_CARDS = 20;
const MOST_ANSWERED = 5;
const AT_ONCE = 40;
const NEWER_MS = 1500;
const LOOK_MS = 1000;

// Every waiting request that the server told of: its id and its session's, null where that isn't known.
export const pending = new Map();
const wanted = new Set();
let inFlight = new Set();
let isFetching = false;
// A newer request's id -> the id of the card whose place it takes.
const replaces = new Map();
// A request's id -> the status it was told to have while an answer was under way: what comes back with the answer may be older.
const toldMeanwhile = new Map();

export const cardOf = (id) => $(`request-${id}`);
export const waitingCards = (root = document) => [...root.querySelectorAll('.card[data-request][data-status="pending"]')];
const ownSession = () => ($("output") ? $("output").dataset.session : null);
const isHere = (session) => !ownSession() || !session || session === ownSession();

// -- what the server tells ------------------------------------------------------------------------------------------------

export function requestChanged(request) {
  if (isInSet(request) && !cardOf(request.id)) return;
  const card = cardOf(request.id);
  if (card && card.dataset.busy) toldMeanwhile.set(request.id, request.status);
  if (request.status !== "pending") {
    pending.delete(request.id);
    if (card && !card.dataset.busy && request.superseded_by) superseded(request.id, request.superseded_by);
    else if ((card && !card.dataset.busy) || replaces.has(request.id) || inFlight.has(request.id) || wanted.has(request.id)) want(request.id);
  } else {
    const isNew = !pending.has(request.id);
    pending.set(request.id, request.session_id);
    if (card) update(card, request);
    else if ($("cards") && isHere(request.session_id) && (room() > 0 || replaces.has(request.id))) want(request.id);
    if (isNew) say(`A ${request.category} request waits`);
  }
  changed();
}

// The present state, on each connection: whatever differs from the page is fetched.
export function presentState(ids, requests) {
  pending.clear();
  const sessions = new Map(requests.map((request) => [request.id, request.session_id]));
  for (const id of ids) pending.set(id, sessions.get(id) || null);
  if ($("cards")) {
    for (const card of waitingCards()) if (!pending.has(card.dataset.request)) want(card.dataset.request);
    fill();
  }
  changed();
}

// The card goes when what took its place comes; where nothing does, it is asked what became of it.
function superseded(id, newer) {
  replaces.set(newer, id);
  setTimeout(() => {
    replaces.delete(newer);
    if (cardOf(id) && !pending.has(id)) want(id);
  }, NEWER_MS);
}

function update(card, request) {
  const times = card.querySelector('[data-role="times"]');
  if (times && request.asked_times > 1) {
    times.textContent = `asked ${request.asked_times} times`;
    times.hidden = false;
    const share = card.querySelector('[data-role="share"]');
    if (share) share.hidden = false;
  }
  const held = card.querySelector(".countdown [data-over]");
  if (held && request.hold_until) held.dataset.until = request.hold_until;
}

// How many more cards the page takes, those on their way included. 500 diffs at once help nobody.
function room() {
  return MOST_CARDS - waitingCards().length - wanted.size - inFlight.size;
}

function fill() {
  for (const [id, session] of pending) {
    if (room() <= 0) break;
    if (isHere(session) && !cardOf(id) && !inFlight.has(id)) want(id);
  }
}

// -- cards from the server ------------------------------------------------------------------------------------------------

export function want(id) {
  wanted.add(id);
  if (!isFetching) fetchWanted();
}

async function fetchWanted() {
  isFetching = true;
  try {
    while (wanted.size) {
      const ids = [...wanted].slice(0, AT_ONCE);
      for (const id of ids) wanted.delete(id);
      inFlight = new Set(ids);
      const { ok, text: html } = await get(`/parts/cards?ids=${ids.map(encodeURIComponent).join(",")}`);
      if (!ok) break;
      await new Promise(whenReleased);
      inFlight = new Set();
      place(html);
    }
  } catch {
    wanted.clear(); // the connection is lost: the present state comes with the next one
  } finally {
    inFlight = new Set();
    isFetching = false;
  }
}

function place(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const card of page.querySelectorAll("article.card")) {
    const { request: id, status, supersededBy: newer } = card.dataset;
    if (pending.has(newer) && !cardOf(newer) && waits(cardOf(id))) {
      superseded(id, newer);
      want(newer);
      continue;
    }
    const old = cardOf(id) || cardOf(replaces.get(id));
    replaces.delete(id);
    const section = document.querySelector(`section[data-category="${CSS.escape(card.dataset.category)}"]`);
    if (!section || (!old && (status !== "pending" || (ownSession() && !isHere(pending.get(id)))))) continue;
    card.removeAttribute("hx-swap-oob");
    document.adoptNode(card);
    if (waits(old) && status === "pending") takeOver(old, card);
    else if (old) {
      const hadFocus = old.contains(document.activeElement);
      old.replaceWith(card);
      if (waits(old)) say(card.getAttribute("aria-label"));
      // Not on to the next card: a person who is about to press a key would answer what they have not seen.
      if (hadFocus) card.focus({ preventScroll: true });
    } else {
      const before = [...section.querySelectorAll(".card.answered")].findLast((one) => one.dataset.about && one.dataset.about === card.dataset.about);
      if (before) before.after(card);
      else inPlace(section, card);
      card.classList.add("fresh");
      looksNew(card);
    }
    htmx.process(card);
  }
  tick();
}

const waits = (card) => Boolean(card) && card.dataset.status === "pending";

// The newer version of a card. Nobody can have looked at it yet.
function takeOver(old, card) {
  looksNew(card);
  const { had, kept } = takePlace(old, card);
  if (old.id === card.id) return;
  const note = document.createElement("p");
  note.className = "warning";
  note.dataset.role = "newer";
  note.textContent = `This changed again, in the agent's copy or in your folder: this is the newer version.${had ? ` Of your ${had} ${had === 1 ? "tick" : "ticks"} ${kept} still ${kept === 1 ? "stands" : "stand"}.` : ""}`;
  card.querySelector(".body").prepend(note);
  say(`A newer version took the place of ${card.getAttribute("aria-label")}`);
}

// -- those that somebody waits for come first, each in the order of asking ---------------------------------------------------

const isLeft = (card) => {
  const held = card.querySelector(".countdown [data-over]");
  return Boolean(held) && Number(held.dataset.until) <= now();
};
const order = (one, other) => isLeft(one) - isLeft(other) || Number(one.dataset.asked) - Number(other.dataset.asked);
// What a person is in with the keyboard, or points at.
const isInHand = (card) => card.contains(document.activeElement) || card.matches(":hover");

// Does what moves cards; the one in hand stays where it is on the screen, so that only what is above or below it moves.
function around(act) {
  const held = waitingCards().find(isInHand);
  const top = held && held.getBoundingClientRect().top;
  act();
  if (held) scrollBy({ top: held.getBoundingClientRect().top - top, behavior: "instant" });
}

function inPlace(section, card) {
  const next = waitingCards(section).find((one) => order(card, one) < 0);
  around(() => (next ? next.before(card) : section.append(card)));
}

// Cards that were left since go behind those that weren't, and one that is held again goes back; one in hand only once it isn't any more.
function arrange() {
  for (const section of document.querySelectorAll("section.category")) {
    const cards = waitingCards(section).filter((card) => !isInHand(card));
    const sorted = cards.toSorted(order);
    if (sorted.every((card, at) => card === cards[at])) continue;
    const left = sorted.filter(isLeft), held = sorted.slice(0, sorted.length - left.length);
    around(() => {
      section.append(...left);
      for (let at = held.length - 2; at >= 0; at--) if (!precedes(held[at], held[at + 1])) held[at + 1].before(held[at]);
    });
  }
}

const precedes = (one, other) => Boolean(one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING);

// -- order on the page ----------------------------------------------------------------------------------------------------

let isChanging = false;
export function changed() {
  if (isChanging) return;
  isChanging = true;
  queueMicrotask(() => { isChanging = false; tidy(); });
}

function tidy() {
  count();
  if (!$("cards")) return;
  let shown = 0;
  for (const section of document.querySelectorAll("section.category")) {
    const cards = waitingCards(section);
    shown += cards.length;
    const answered = [...section.querySelectorAll(".card.answered")].filter((card) => !card.contains(document.activeElement));
    for (const card of answered.slice(0, Math.max(0, answered.length - MOST_ANSWERED))) card.remove();
    section.hidden = !section.querySelector(".card");
    section.querySelector('[data-role="bulk"]').hidden = cards.length < 2;
  }
  const more = [...pending.values()].filter(isHere).length - shown;
  const here = more + shown + waitingInSets(isHere);
  $("more").hidden = more <= 0 || shown < MOST_CARDS;
  $("more").textContent = `${more} more wait. They follow as these are answered.`;
  $("nothing").hidden = shown > 0 || here > 0;
  if (more > 0 && shown < FEW_CARDS) fill();
  steady();
}

function count() {
  const number = pending.size + waitingInSets(() => true);
  $("pending-count").textContent = number || "";
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = number ? `(${number}) ${title}` : title;
}

// -- a click that a moved card would catch --------------------------------------------------------------------------------

let pointer = null;
let under = null;
const buttonAt = () => {
  const found = pointer && document.elementFromPoint(pointer.x, pointer.y);
  return found ? found.closest("button") : null;
};
function steady() {
  const found = buttonAt();
  if (found && found !== under && found.matches("[data-answer], [data-bulk]")) {
    document.body.classList.add("moving");
    setTimeout(() => document.body.classList.remove("moving"), STEADY_MS);
  }
  under = found;
}

// -- own answers ----------------------------------------------------------------------------------------------------------

function goOn(card, byPointer) {
  const cards = [...document.querySelectorAll(".card")];
  const after = cards.slice(cards.indexOf(card) + 1).find((one) => one.dataset.status === "pending");
  const next = after || waitingCards()[0];
  if (next) cameByItself(next);
  say(`${card.getAttribute("aria-label")}. ${next ? `${waitingCards().length} wait.` : "Nothing else waits."}`);
  (next || $("main")).focus({ preventScroll: byPointer });
  if (next && !byPointer) next.scrollIntoView({ block: "nearest" });
}

function answered(old, byPointer) {
  const { request: id } = old.dataset;
  const card = cardOf(id) || document.querySelector(`.card[data-takes-place-of="${CSS.escape(id)}"]`);
  if (card && card.dataset.status !== "pending") {
    pending.delete(id);
    goOn(card, byPointer);
  } else if (card) {
    looksNew(card);
    if (card !== old) takePlace(old, card); // the answer didn't count: what was ticked and typed stays
    if (!card.contains(document.activeElement)) card.focus({ preventScroll: true });
  }
}

// What was told while the answer was under way: the action is carried out by now, or what came back was lost.
function hearAgain(id) {
  const [told, card] = [toldMeanwhile.get(id), cardOf(id)];
  if (toldMeanwhile.delete(id) && card && (told === "used" || told !== card.dataset.status)) want(id);
}

// The cards that a button answers: all that its question named, or its own.
function answeredBy(button) {
  if (!("bulk" in button.dataset)) return [button.closest(".card")].filter(Boolean);
  return button.dataset.shown.split(",").map((one) => cardOf(one.split(":")[0])).filter(Boolean);
}

export function watchCards() {
  let byPointer = false;
  document.addEventListener("pointermove", (event) => {
    pointer = { x: event.clientX, y: event.clientY };
    under = buttonAt();
  }, { passive: true });
  document.addEventListener("pointerdown", () => { byPointer = true; }, { capture: true, passive: true });
  document.addEventListener("keydown", () => { byPointer = false; }, { capture: true });

  // By the request, not by its button or form: the answer may have taken these off the page.
  const answering = new WeakMap();
  document.addEventListener("htmx:beforeRequest", ({ detail: { elt, requestConfig } }) => {
    if (requestConfig.verb !== "post") return;
    const cards = answeredBy(elt);
    answering.set(requestConfig, cards);
    for (const card of cards) card.dataset.busy = "1";
  });
  document.addEventListener("htmx:afterRequest", ({ detail: { elt, requestConfig } }) => {
    const cards = answering.get(requestConfig) ?? [];
    for (const card of cards) delete card.dataset.busy;
    if (cards.length && !("bulk" in elt.dataset)) answered(cards[0], byPointer);
    for (const card of cards) hearAgain(card.dataset.request);
    changed();
  });
  // The form of a new rule takes the focus, and gives it back. Only when htmx has taken it over: until then it submits by itself.
  document.addEventListener("htmx:afterSettle", (event) => {
    const form = event.target.matches && event.target.matches(".always") && event.target.querySelector("form");
    const first = form && (form.querySelector("input[type=radio]:checked") || form.querySelector("input:not([type=hidden])"));
    if (first) first.focus();
  });
  document.addEventListener("click", (event) => {
    const cancel = event.target.closest("[data-cancel]");
    if (cancel) closeForm(cancel.closest(".card"), cancel.dataset.cancel);
  });
  document.addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method !== "dialog") event.preventDefault();
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset.own) $(event.target.dataset.own).checked = true;
  });
  setInterval(() => whenReleased(arrange), LOOK_MS);
  if ($("cards")) new MutationObserver(changed).observe($("cards"), { childList: true, subtree: true });
}

export function closeForm(card, key) {
  const box = card && card.querySelector(".always");
  if (!box || !box.firstElementChild) return false;
  box.replaceChildren();
  (card.querySelector(`[data-key="${key}"]`) || card).focus();
  return true;
}
