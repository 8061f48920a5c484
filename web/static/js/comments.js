// Remarks on lines of a change, for the agent. They go with the denial, as lines of its reason. Until then they are kept in this
// browser, so that a reload or a newer version of the card doesn't lose them. A line is chosen by pointer, or with the arrow keys and `c`.
import { $ } from "./say.js";

const KEY = "line-comments";
const MOST_FILES = 50;
const MOST_CHARS = 500;
const MOST_COMMENTS = 50;

function stored() {
  try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
}

// Of each request, its remarks: place ("n12": line 12 as it becomes, "o11": line 11 as it was), the line's text, the remark.
let all = stored();

function keep() {
  all = Object.fromEntries(Object.entries(all).filter(([, list]) => list.length).slice(-MOST_FILES));
  try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* they hold for this page */ }
}

const idOf = (element) => element.closest("[data-say]")?.dataset.say;
const places = (file) => [...file.querySelectorAll("td.code[data-at]")].filter((one) => one.checkVisibility());
const textOf = (code) => code.textContent;
const wordsOf = (at) => `line ${at.slice(1)}${at.startsWith("o") ? " before" : ""}`;

// What goes with a denial of this request; nothing where nothing was said.
export const commentsOf = (id) => (all[id] || []).filter((one) => one.text).map(({ at, text }) => ({ line: Number(at.slice(1)), is_old: at.startsWith("o"), text }));

// Where a file waits: its comments are found by that once the file isn't on the page. Those of its path under another id, which the
// agent changed again, become its own.
export function keepPlace(id, session, path) {
  const isHere = (one) => one.session === session && one.path === path;
  const older = Object.keys(all).filter((one) => one !== id && all[one].some(isHere));
  if (!older.length && (all[id] || []).every(isHere)) return;
  all[id] = [...(all[id] || []), ...older.flatMap((one) => all[one])].map((one) => Object.assign(one, { session, path }));
  for (const one of older) delete all[one];
  keep();
}

// Of each file of a session with comments: its id and path.
export const placesOf = (session) => Object.keys(all).filter((id) => commentsOf(id).length && all[id][0].session === session).map((id) => [id, all[id][0].path]);

export function forgetComments(ids) {
  for (const id of ids) delete all[id];
  keep();
}

// What a person is asked before an approval that their comments don't go with; nothing where there are none.
export function questionOf(button) {
  if (!button.matches("[data-approves]:not([data-approve-ticked])")) return "";
  const id = button.closest("[data-file]")?.dataset.file ?? button.closest(".card[data-request]")?.dataset.request;
  const number = id ? commentsOf(id).length : 0;
  return number ? `Your ${number === 1 ? "comment goes" : `${number} comments go`} with a denial only. An approval drops ${number === 1 ? "it" : "them"}.` : "";
}

// To the newer version of a card.
export function moveComments(old, card) {
  const [was, is] = [old, card].map((one) => one.dataset.request);
  if (was === is || !all[was]) return;
  all[is] = all[was];
  delete all[was];
  keep();
}

// Once that card is on the page: nothing else may come that has them shown.
export function showComments(card) {
  for (const file of card.querySelectorAll("[data-say]")) show(file);
}

function make(name, props = {}, ...children) {
  const made = Object.assign(document.createElement(name), props);
  made.append(...children);
  return made;
}

function rowFor(id, said) {
  const where = wordsOf(said.at);
  const field = make("textarea", { className: "input", rows: 2, maxLength: MOST_CHARS, value: said.text, placeholder: "Say what should be different; it goes with the denial" });
  field.setAttribute("aria-label", `Your comment on ${where}, for the agent`);
  const remove = make("button", { type: "button", className: "button compact plain", textContent: "Remove" });
  const head = make("header", { className: "bubble-head" }, make("h4", { textContent: `You, on ${where}` }), make("span", { className: "badge", textContent: "goes to the agent with your denial" }));
  const bubble = make("article", { className: "bubble mine" }, head, make("div", { className: "bubble-body" }, field), make("footer", { className: "bubble-foot" }, remove));
  bubble.setAttribute("aria-label", `Your comment on ${where}`);
  const row = make("tr", { className: "say mine" }, make("td", { colSpan: 4 }, bubble));
  row.dataset.on = said.at;
  field.addEventListener("input", () => { said.text = field.value; keep(); told(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); (row.closest(".file") || document.body).focus({ preventScroll: true }); }
  });
  field.addEventListener("blur", () => { if (!said.text.trim()) drop(id, said, row); });
  remove.addEventListener("click", () => drop(id, said, row));
  return row;
}

function drop(id, said, row) {
  all[id] = (all[id] || []).filter((one) => one !== said);
  row.remove();
  keep();
  told();
}

// What is said about them beside each file.
function told() {
  for (const place of document.querySelectorAll("[data-comments-on]")) {
    const number = commentsOf(place.dataset.commentsOn).length;
    place.textContent = number ? "short" in place.dataset ? String(number) : `${number} ${number === 1 ? "comment goes" : "comments go"} back with it` : "";
  }
  document.dispatchEvent(new Event("gatehouse:comments"));
}

// Where a remark stands now: on its line, else on one of the same side that reads the same, else on what has its number. Nowhere while
// that isn't shown.
function placeOf(file, said) {
  const codes = places(file);
  const at = codes.find((one) => one.dataset.at === said.at);
  if (at && textOf(at) === said.of) return at;
  return codes.find((one) => textOf(one) === said.of && one.dataset.at[0] === said.at[0]) || at;
}

// Puts the remarks of a file on their lines.
function show(file) {
  const id = file.dataset.say;
  for (const said of all[id] || []) {
    if (file.querySelector(`tr.mine[data-on="${CSS.escape(said.at)}"]`)) continue;
    const code = placeOf(file, said);
    if (!code) continue;
    said.at = code.dataset.at;
    code.closest("tr").after(rowFor(id, said));
  }
  told();
}

export function comment(code) {
  const id = idOf(code);
  const file = code.closest("[data-say]");
  const { at } = code.dataset;
  all[id] ||= [];
  if (!all[id].some((one) => one.at === at)) {
    if (all[id].length >= MOST_COMMENTS) return;
    all[id].push({ at, of: textOf(code), text: "" });
    show(file);
  }
  file.querySelector(`tr.mine[data-on="${CSS.escape(at)}"] textarea`)?.focus();
}

// One button for all lines: it stands at the one that is pointed at, or that the arrow keys chose.
const button = make("button", { type: "button", className: "add-say", textContent: "+", tabIndex: -1 });
let current = null;

function choose(code) {
  if (current === code) return;
  current?.classList.remove("at");
  current = code;
  if (!code) return button.remove();
  code.classList.add("at");
  button.setAttribute("aria-label", `Comment on ${wordsOf(code.dataset.at)}`);
  code.previousElementSibling.append(button);
}

function walk(file, step) {
  const codes = places(file);
  const at = codes.indexOf(current);
  const next = codes[at < 0 ? (step > 0 ? 0 : codes.length - 1) : Math.min(Math.max(at + step, 0), codes.length - 1)];
  if (!next) return;
  choose(next);
  next.scrollIntoView({ block: "nearest" });
  $("said").textContent = `${wordsOf(next.dataset.at)}: ${textOf(next)}`;
}

function pressed(event) {
  const file = event.target.matches?.("[data-say]") ? event.target : null;
  if (!file || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") walk(file, event.key === "ArrowDown" ? 1 : -1);
  else if (event.key === "c" && current && file.contains(current)) comment(current);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

export function watchComments() {
  document.addEventListener("pointermove", ({ target }) => {
    const row = target.closest?.("[data-say] .diff tr:not(.say)");
    if (!row) return;
    const code = target.closest("td.code[data-at]") || row.querySelector("td.code[data-at]");
    if (code) choose(code);
  }, { passive: true });
  button.addEventListener("click", () => { if (current) comment(current); });
  document.addEventListener("keydown", pressed);
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    const card = detail.elt.closest(".card[data-request]");
    if (detail.verb !== "post" || !detail.path.endsWith("/denied") || !card) return;
    const said = commentsOf(card.dataset.request);
    if (said.length) detail.parameters.comments = JSON.stringify(said);
  });
  let isWaiting = false;
  const later = () => {
    if (isWaiting) return;
    isWaiting = true;
    queueMicrotask(() => { isWaiting = false; for (const file of document.querySelectorAll("[data-say]")) show(file); });
  };
  document.addEventListener("htmx:afterSettle", later);
  document.addEventListener("gatehouse:laid-out", later);
  later();
}
