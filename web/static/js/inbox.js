// The inbox: a list that follows what happens, and one card beside it. Nothing moves under a pointer: while a person is in the list,
// rows change in place, and new ones wait behind "3 new". The card changes only when they choose another, answer it, or it settles.
import { get } from "./get.js";
import { restoreTicks, takePlace } from "./hunks.js";
import { soon } from "./live.js";
import { likeFocused } from "./parts.js";
import { whenReleased } from "./press_guard.js";
import { $, say } from "./say.js";
import { cameByItself, looksNew } from "./steady.js";
import { tick } from "./time.js";

const FIND_MS = 200;
const SLOW_MS = 400;
const OVER_PAUSE_MS = 1000;
const FILTERS = { show: "all", find: "", session: "" };
const asked = new URLSearchParams(location.search);
// What of the inbox is listed; its address says so.
const filters = Object.fromEntries(Object.entries(FILTERS).map(([name, usual]) => [name, asked.get(name) ?? usual]));
const listAddress = () => {
  const chosen = Object.entries(filters).filter(([name, value]) => value !== FILTERS[name]);
  return chosen.length ? `/?${new URLSearchParams(chosen)}` : "/";
};
const ticked = new Set();
let lastTicked = "";
// The request that the card was of last.
let shown = "";
let news = null;
// Each choice of a card counts, and each answer that is sent: what was asked for before it isn't shown after it.
let choice = 0;
let answers = 0;
// Row -> what it was made of: a row that reads the same stays.
const madeOf = new WeakMap();
// Card -> what of it is flagged and was not in view yet.
const unseen = new WeakMap();

const rows = () => [...$("inbox-list").querySelectorAll("[data-row]")];
const isWaiting = (row) => row.dataset.state === "waiting" || row.dataset.state === "held";
const waiting = () => rows().filter(isWaiting);
const rowOf = (id) => $("inbox-list").querySelector(`[data-row="${CSS.escape(id)}"]`);
const selected = () => $("pane").dataset.request || "";
const parse = (html) => new DOMParser().parseFromString(html, "text/html");

// Does it, and once more where it was asked for meanwhile: an older answer never comes after a newer one.
function oneAtATime(act) {
  let running = null, isAsked = false;
  const run = async () => {
    try {
      while (isAsked) { isAsked = false; await act(); }
    } finally { running = null; }
  };
  return () => { isAsked = true; return (running ??= run()); };
}

// -- the list ---------------------------------------------------------------------------------------------------------------

const refresh = oneAtATime(async () => {
  const [sent, query] = [answers, new URLSearchParams(filters).toString()];
  const { ok, text } = await get(`/parts/inbox?${query}`);
  if (!ok) return;
  await new Promise(whenReleased);
  if (sent !== answers) {
    refresh();
    return;
  }
  const fresh = parse(text).body;
  if (isInHand() && query === shownQuery) merge(fresh);
  else show(fresh, query);
});

// Whether a person points at a row, is at one with the keyboard or at the list of sessions, or has selected some.
function isInHand() {
  const list = $("inbox-list");
  return ticked.size > 0 || (list.contains(document.activeElement) && document.activeElement.closest("[data-row], select")) || list.querySelector(".row:hover") !== null;
}

// Whether the card is one that a person chose, and has not answered since: then it stays.
let isChosen = false;
// What the list that is shown was asked for.
let shownQuery = new URLSearchParams(filters).toString();

function show(fresh, query = shownQuery) {
  news = null;
  shownQuery = query;
  $("news").hidden = true;
  const list = $("inbox-list");
  const [top, focused] = [$("inbox").scrollTop, likeFocused(list)];
  const waited = waiting().map((row) => row.dataset.row);
  list.replaceChildren(...fresh.childNodes);
  $("inbox").scrollTop = top;
  if (focused) list.querySelector(focused)?.focus({ preventScroll: true });
  for (const row of rows()) madeOf.set(row, row.outerHTML);
  mark();
  const first = waiting()[0];
  const nothingWaited = !waited.some((id) => rowOf(id) && isWaiting(rowOf(id)));
  if (first && nothingWaited && !isChosen && $("pane").dataset.status !== "pending") open(first.dataset.row, { how: "followed" });
}

// Rows change where they are; what is new waits.
function merge(fresh) {
  const by = new Map([...fresh.querySelectorAll("[data-row]")].map((row) => [row.dataset.row, row]));
  const focused = likeFocused($("inbox-list"));
  let isNew = 0;
  for (const row of rows()) {
    const now = by.get(row.dataset.row);
    if (!now && isWaiting(row)) {
      row.classList.add("settled");
      row.dataset.state = "gone";
    } else if (now && now.outerHTML !== madeOf.get(row)) {
      const made = now.cloneNode(true);
      madeOf.set(made, made.outerHTML);
      row.replaceWith(made);
    }
    by.delete(row.dataset.row);
  }
  for (const row of by.values()) isNew += isWaiting(row);
  if (!$("sums").querySelector("select:focus")) $("sums").replaceWith(fresh.querySelector("#sums").cloneNode(true));
  if (focused && !$("inbox-list").contains(document.activeElement)) $("inbox-list").querySelector(focused)?.focus({ preventScroll: true });
  news = fresh;
  $("news").hidden = !isNew;
  $("news").textContent = `${isNew} new: show`;
  mark();
}

function mark() {
  const id = selected();
  shown = id || shown;
  const all = waiting();
  for (const row of rows()) {
    const link = row.querySelector("[data-open]");
    if (row.dataset.row === id) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const box = row.querySelector("input[name=row]");
    if (box) box.checked = ticked.has(row.dataset.row);
  }
  for (const one of [...ticked]) if (!rowOf(one) || !isWaiting(rowOf(one))) ticked.delete(one);
  $("to-answer").hidden = !ticked.size;
  $("to-answer").textContent = `Look at ${ticked.size} and answer`;
  const place = $("pane").querySelector('[data-role="place"]');
  const at = all.findIndex((row) => row.dataset.row === id);
  if (place) place.textContent = at < 0 ? "" : `${at + 1} of ${all.length}`;
  tick();
}

// -- the card ---------------------------------------------------------------------------------------------------------------

const partOf = (id) => `/parts/card/${encodeURIComponent(id)}`;
const addressOf = (id) => `/requests/${encodeURIComponent(id)}`;

// Shows another card. `how`: a person "chose" it, so that the browser's "back" leads to the one before; it "followed" by itself, and
// keys don't count at once; or they went "back" to it. Whether it is shown.
async function open(id, { how = "chosen", then = null } = {}) {
  const mine = ++choice;
  let pane = $("pane");
  const wasInHand = how !== "followed" || pane.contains(document.activeElement);
  if (selected() !== id) {
    const slow = setTimeout(() => pane.toggleAttribute("data-opening", true), SLOW_MS);
    const { ok, text } = await get(partOf(id)).finally(() => { clearTimeout(slow); pane.removeAttribute("data-opening"); });
    await new Promise(whenReleased);
    pane = ok && mine === choice && parse(text).querySelector("#pane");
    if (!pane || (how === "followed" && pane.dataset.status !== "pending")) return false;
    place(pane);
  }
  isChosen = how !== "followed";
  if (how === "chosen") $("main").classList.add("on-card");
  if (how !== "back") history[how === "chosen" ? "pushState" : "replaceState"]({ id }, "", $("main").classList.contains("on-card") ? addressOf(id) : listAddress());
  if (how === "followed") cameByItself(pane);
  if (wasInHand && document.activeElement !== $("find")) pane.focus({ preventScroll: true });
  rowOf(id)?.scrollIntoView({ block: "nearest" });
  if (then) then();
  return true;
}

function place(pane) {
  const hadFocus = $("pane").contains(document.activeElement);
  looksNew(pane);
  $("pane").replaceWith(pane);
  htmx.process(pane);
  restoreTicks(pane);
  watchFlags(pane);
  mark();
  if (hadFocus) pane.focus({ preventScroll: true });
}

export function cardChanged(id) {
  if ($("pane")?.dataset.request === id) look().catch(() => {});
}

// The selected request changed: what a person ticked and typed stays where it still waits.
const look = oneAtATime(async () => {
  const pane = $("pane");
  const id = pane.dataset.request;
  if (!id || pane.dataset.busy) return;
  const { ok, text } = await get(partOf(id));
  await new Promise(whenReleased);
  if (!ok || $("pane") !== pane || pane.dataset.busy) return;
  const fresh = parse(text).querySelector("#pane");
  const newer = fresh.dataset.supersededBy;
  if (newer && pane.dataset.status === "pending") {
    await takeOver(pane, newer);
    return;
  }
  if (pane.dataset.status === "pending" && fresh.dataset.status === "pending") {
    for (const part of ['[data-role="times"]', '[data-role="waits"]', '[data-role="set"]']) keepUp(pane, fresh, part);
    return;
  }
  if (pane.dataset.status === fresh.dataset.status && said(pane) === said(fresh)) return;
  // Not on to another card: a person who is about to press a key would answer what they have not seen.
  place(fresh);
  sayCame(said(fresh));
});

const said = (pane) => pane.querySelector(".answer-what")?.textContent;

function sayCame(text) {
  say(`${(text ?? "").trim()}${waiting().some((row) => row.dataset.row !== selected()) ? "" : ". Nothing else waits"}`);
}

function keepUp(pane, fresh, part) {
  const [was, is] = [pane, fresh].map((one) => one.querySelector(part));
  if (was && is) was.replaceWith(is);
}

// A newer version takes the card's place, with the ticks and words that still fit.
async function takeOver(old, newer) {
  const { ok, text } = await get(partOf(newer));
  const fresh = ok && parse(text).querySelector("#pane");
  if (!fresh || $("pane") !== old || old.dataset.busy) return;
  if (fresh.dataset.status !== "pending") return void place(fresh); // a part of it was approved elsewhere
  document.adoptNode(fresh);
  looksNew(fresh);
  const { had, kept } = takePlace(old, fresh);
  htmx.process(fresh);
  watchFlags(fresh);
  const note = document.createElement("div");
  note.className = "notice";
  note.dataset.role = "newer";
  note.append(document.createElement("span"), document.createElement("p"));
  note.lastChild.textContent = `This changed again, in the agent's copy or in your folder: this is the newer version.${had ? ` Of your ${had} ${had === 1 ? "tick" : "ticks"} ${kept} still ${kept === 1 ? "stands" : "stand"}.` : ""}`;
  fresh.querySelector(".card-head").after(note);
  history.replaceState({ id: newer }, "", addressOf(newer));
  mark();
  say("A newer version took the place of the card");
}

// What is flagged has to have been in view before it can be approved, and what is still on its way has to have come.
const wereSeen = new WeakSet();
function watchFlags(pane) {
  const flagged = new Set([...pane.querySelectorAll("[data-flagged], [data-coming]")].filter((one) => !wereSeen.has(one)));
  unseen.set(pane, flagged);
  const shut = () => {
    for (const button of pane.querySelectorAll("button[data-approves]")) button.toggleAttribute("data-shut", flagged.size > 0);
    const why = pane.querySelector('[data-role="shut"]');
    if (why) why.hidden = !flagged.size;
  };
  shut();
  if (!flagged.size) return;
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) { flagged.delete(target); wereSeen.add(target); seen.unobserve(target); }
    shut();
  }, { root: pane.querySelector(".pane-scroll"), threshold: 0.5 });
  for (const one of flagged) if (!("coming" in one.dataset)) seen.observe(one);
}

function isShut(button) {
  const pane = button && button.closest("#pane");
  return Boolean(pane) && unseen.get(pane)?.size > 0;
}

// After an answer: on to what waits next. `before` waited before it, `ids`
// were answered; a rule may have answered more.
async function answered(pane, before, ids) {
  isChosen = false;
  const news = refresh();
  const at = before.findIndex((id) => ids.includes(id));
  const next = [...before.slice(at + 1), ...before.slice(0, Math.max(at, 0))].find((id) => !ids.includes(id));
  if (next && await open(next, { how: "followed" })) return;
  await news.catch(() => {});
  if ($("pane") !== pane) return;
  const first = waiting().find((row) => !ids.includes(row.dataset.row));
  if (!first || !await open(first.dataset.row, { how: "followed" })) sayCame(said(pane));
}

function filter(wanted) {
  Object.assign(filters, wanted);
  if (location.pathname === "/") history.replaceState(history.state, "", listAddress());
  fresh();
}

function fresh() {
  document.body.dispatchEvent(new CustomEvent("gatehouse:inbox"));
}

// -- several at once --------------------------------------------------------------------------------------------------------

function toggle(id, on = !ticked.has(id)) {
  if (!rowOf(id)?.querySelector("input[name=row]")) return;
  if (on) ticked.add(id);
  else ticked.delete(id);
  lastTicked = id;
}

function between(one, other) {
  const ids = waiting().map((row) => row.dataset.row);
  const [from, to] = [ids.indexOf(one), ids.indexOf(other)].toSorted((a, b) => a - b);
  return from < 0 ? [other] : ids.slice(from, to + 1);
}

async function showBatch() {
  mark();
  $("inbox").classList.toggle("selecting", ticked.size > 0);
  if (!ticked.size) {
    const id = shown || waiting()[0]?.dataset.row;
    if (id && "batch" in $("pane").dataset) await open(id, { how: "back" });
    return;
  }
  const mine = ++choice;
  const body = new URLSearchParams({ ids: [...ticked].join(",") });
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  const response = await fetch("/parts/batch", { method: "POST", body, headers });
  const text = await response.text();
  if (response.ok && mine === choice) place(parse(text).querySelector("#pane"));
}

// All that are like the selected one: of its session and kind, and not flagged.
function alike() {
  const row = rowOf(shown);
  if (!row) return;
  const kind = row.querySelector(".kind").getAttribute("class");
  for (const one of row.closest("section").querySelectorAll("[data-row]")) {
    const box = one.querySelector("input[name=row]:not([data-alone])");
    if (box && one.querySelector(".kind").getAttribute("class") === kind) toggle(one.dataset.row, true);
  }
  showBatch();
}

// -- keys and clicks --------------------------------------------------------------------------------------------------------

export function go(step) {
  const ids = waiting().map((row) => row.dataset.row);
  if (!ids.length) return;
  const at = ids.indexOf(selected() || shown);
  open(ids[at < 0 ? (step > 0 ? 0 : ids.length - 1) : (at + step + ids.length) % ids.length]);
}

// The keys of the list. Whether the key is one.
export function pressed(key) {
  if (!$("inbox")) return false;
  if (key === "j" || key === "k") go(key === "j" ? 1 : -1);
  else if (key === "/") $("find").focus();
  else if (key === "x" && shown) { toggle(shown); showBatch(); }
  else if (key === "X") alike();
  else if (key === "Enter" && $("pane").querySelector("[data-opens]") && document.activeElement.tagName !== "A") $("pane").querySelector("[data-opens]").click();
  else if (key === "Escape" && ticked.size) { ticked.clear(); showBatch(); }
  else return false;
  return true;
}

export function watchInbox() {
  if (!$("inbox")) return;
  history.replaceState({ id: selected() }, "");
  isChosen = location.pathname !== "/";
  watchFlags($("pane"));
  mark();
  document.body.addEventListener("gatehouse:inbox", () => refresh().catch(() => {}));
  document.body.addEventListener("gatehouse:over", () => soon("inbox", OVER_PAUSE_MS)); // who is held no longer comes last
  addEventListener("popstate", ({ state }) => {
    $("main").classList.toggle("on-card", location.pathname !== "/");
    if (state?.id && state.id !== selected() && !ticked.size) open(state.id, { how: "back" });
  });
  $("news").addEventListener("click", () => { if (news) show(news); });
  // Where the page is too narrow for both.
  $("to-answer").addEventListener("click", async () => {
    if (!("batch" in $("pane").dataset)) await showBatch();
    $("main").classList.add("on-card");
    history.pushState({ id: "" }, "", listAddress());
    $("pane").focus({ preventScroll: true });
  });
  $("select").addEventListener("click", () => { $("inbox").classList.toggle("selecting"); });
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.button) return;
    const link = event.target.closest("[data-open]");
    if (link) {
      event.preventDefault();
      if (event.shiftKey) { for (const id of between(lastTicked || selected(), link.dataset.open)) toggle(id, true); showBatch(); return; }
      open(link.dataset.open, { then: "thenAlways" in link.dataset ? () => { const menu = $("pane").querySelector("details.menu"); if (menu) menu.open = true; } : null });
    }
    const box = event.target.closest("input[name=row]");
    if (box && event.shiftKey) for (const id of between(lastTicked || box.value, box.value)) toggle(id, box.checked); // and "change" follows
    const step = event.target.closest("[data-go]");
    if (step) go(Number(step.dataset.go));
    if (event.target.closest("[data-show-all-rows]")) { $("find").value = ""; filter(FILTERS); }
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard.writeText(copy.parentElement.querySelector("[data-role=action]").textContent.replace(/^The exact action: /, "")).then(() => say("Copied"));
  });
  $("inbox").addEventListener("change", ({ target }) => {
    if (target.name in FILTERS && target !== $("find")) filter({ [target.name]: target.value });
    if (target.name === "row") { toggle(target.value, target.checked); showBatch(); }
  });
  let timer = 0;
  $("find").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => filter({ find: $("find").value }), FIND_MS);
  });
  // An answer of the person's: which rows waited before it, so that the next of them follows; none where the card waited no more.
  let before = [], ids = [];
  document.addEventListener("htmx:beforeRequest", ({ detail: { elt, requestConfig } }) => {
    const pane = elt.closest("#pane");
    if (!pane || requestConfig.verb !== "post") return;
    before = waiting().map((row) => row.dataset.row);
    ids = pane.dataset.status === "pending" ? (pane.dataset.batch ?? pane.dataset.request).split(",") : [];
    pane.dataset.busy = "1";
    answers += 1;
    pane.focus({ preventScroll: true }); // the button is disabled meanwhile, which would lose the focus
  });
  document.addEventListener("htmx:afterRequest", ({ detail: { requestConfig: { elt, verb } } }) => {
    const pane = elt.closest("#pane");
    if (!pane || verb !== "post") return;
    delete pane.dataset.busy;
    look().catch(() => {}); // what came meanwhile of the one that is shown
  });
  document.addEventListener("htmx:oobAfterSwap", () => mark());
  document.addEventListener("htmx:afterSwap", ({ detail: { target, requestConfig } }) => {
    if (requestConfig?.verb !== "post" || target.id !== "pane") return;
    const pane = $("pane");
    answers += 1;
    watchFlags(pane);
    pane.focus({ preventScroll: true });
    if ("batch" in pane.dataset && pane.dataset.status !== "pending") {
      ticked.clear();
      $("inbox").classList.remove("selecting");
    }
    mark();
    if (pane.dataset.status === "pending" || !ids.length) return;
    // Where somebody else was faster, that is said, and nothing follows.
    if (pane.querySelector(".error")) fresh();
    else answered(pane, before, ids);
  });
  document.addEventListener("htmx:afterSettle", ({ detail: { requestConfig }, target }) => {
    if (requestConfig?.verb === "get" && target.closest && target.closest("#pane")) watchFlags($("pane"));
  });
  // A click on what is shut says why.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-approves]:not(form), form[data-approves] [data-answer]");
    if (!isShut(button)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    $("pane").querySelector("[data-flagged], [data-coming]")?.scrollIntoView({ block: "center" });
    say("Look at what is flagged first.");
  }, true);
}
