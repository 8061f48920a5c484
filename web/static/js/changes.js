// Many changed files of one session as one card: comes when there are many, keeps what a person opened and ticked, and is never
// replaced under their hand. What is shown goes back with each answer; the server refuses an answer to anything else.
import { pending } from "./cards.js";
import { get } from "./get.js";
import { whenReleased } from "./press_guard.js";
import { $ } from "./say.js";
import { looksNew } from "./steady.js";

// How many changed files wait, by session; only of the sessions that are shown as one card.
const sets = new Map();
const coming = new Set();
// The same of those that an answer is under way for: what comes back with it counts first.
const toldMeanwhile = new Map();

export const cardOfSet = (session) => $(`changes-${session}`);
export const waitingInSets = (isHere) => [...sets].filter(([session]) => isHere(session)).reduce((sum, [, number]) => sum + number, 0);
const ownSession = () => ($("output") ? $("output").dataset.session : null);

export function presentSets(changes) {
  sets.clear();
  for (const { session_id: session, waiting } of changes) setChanged(session, waiting);
}

export function setChanged(session, waiting) {
  if (waiting) sets.set(session, waiting);
  else sets.delete(session);
  if (!$("cards") || (ownSession() && ownSession() !== session)) return;
  const card = cardOfSet(session);
  if (!card && waiting) bring(session);
  else if (card && card.dataset.busy) toldMeanwhile.set(session, waiting);
  else if (card && (card.dataset.status === "done" || !waiting) && !card.contains(document.activeElement)) bring(session);
}

// Of a session that has a card, one changed file or its answer.
export function isInSet(request) {
  return request.origin === "workspace" && cardOfSet(request.session_id) !== null;
}

async function bring(session) {
  if (coming.has(session)) return;
  coming.add(session);
  try {
    const { ok, text: html } = await get(`/parts/changes/${encodeURIComponent(session)}`);
    await new Promise(whenReleased);
    if (ok) place(session, html);
  } catch { /* the connection is lost: the present state comes with the next one */ } finally {
    coming.delete(session);
  }
}

function place(session, html) {
  const card = new DOMParser().parseFromString(html, "text/html").querySelector("article.changes");
  const section = document.querySelector('section[data-category="filesystem"]');
  const old = cardOfSet(session);
  if (!card || !section) return;
  if (old && old.dataset.busy) return;
  document.adoptNode(card);
  if (old) old.replaceWith(card);
  else section.querySelector(".group").after(card);
  // What is in this card has no card of its own any more.
  for (const one of section.querySelectorAll(`.card[data-origin="workspace"][data-session="${CSS.escape(session)}"][data-status="pending"]`)) {
    pending.delete(one.dataset.request);
    if (!one.contains(document.activeElement)) one.remove();
  }
  htmx.process(card);
  looksNew(card);
}

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
    const card = event.detail.elt.matches && event.detail.elt.matches(".changes") ? cardOfSet(event.detail.elt.dataset.changes) : null;
    if (!card) return;
    const waiting = Number(card.dataset.waiting);
    if (waiting) sets.set(card.dataset.changes, waiting);
    else sets.delete(card.dataset.changes);
    if (!document.activeElement || document.activeElement === document.body) card.focus({ preventScroll: true });
  });
  document.addEventListener("htmx:afterRequest", ({ detail: { requestConfig: { elt, verb } } }) => {
    const old = verb === "post" && elt.closest(".changes");
    if (!old) return;
    const { changes: session } = old.dataset;
    const waiting = toldMeanwhile.get(session);
    const card = cardOfSet(session);
    if (toldMeanwhile.delete(session) && card && waiting !== Number(card.dataset.waiting)) setChanged(session, waiting);
  });
}
