// How differences are laid out: unified or side by side, with or without changes of white space. What a person chose is remembered in
// this browser. It only moves and hides rows of the table that the server sent: nothing is approved while any is hidden (folds.js).
const root = document.documentElement;
const WIDE = matchMedia("(min-width: 48rem)");
// Table -> its rows as they came.
const unified = new WeakMap();

const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* it holds for this page */ } };

let isSide = stored("diff-layout") === "side";
let hidesSpace = stored("diff-space") === "hidden";

// Whether a part of the page has changes that the switch hides.
export const hasHiddenSpace = (part) => hidesSpace && part.querySelector(".diff .space") !== null;

export function showSpace(isShown) {
  hidesSpace = !isShown;
  store("diff-space", isShown ? "shown" : "hidden");
  apply();
}

function cell(name, text = "") {
  const made = document.createElement("td");
  made.className = name;
  made.textContent = text;
  return made;
}

// Half a row: number, and the code of a line, or nothing.
function half(row, side) {
  const kind = row && row.className;
  const number = row ? row.cells[side === "old" ? 0 : 1].textContent : "";
  const code = row ? row.cells[3].cloneNode(true) : cell("code");
  if (side === "old" && row && !kind) code.removeAttribute("data-at"); // the same line on both sides has one place for a comment
  const made = [cell("n", number), code];
  for (const one of made) one.className = `${one.className} ${kind || (row ? "" : "none")}`.trim();
  return made;
}

function pair(old, fresh) {
  const row = document.createElement("tr");
  row.append(...half(old, "old"), ...half(fresh, "new"));
  return row;
}

function split(table) {
  const rows = [...table.rows].filter((row) => !row.matches(".mine"));
  unified.set(table, rows);
  const made = [];
  for (let at = 0; at < rows.length;) {
    const removed = [], added = [], below = [];
    while (at < rows.length && rows[at].matches(".rem, .note, .say") && !added.length) {
      (rows[at].matches(".rem") ? removed : below).push(rows[at]);
      at += 1;
    }
    while (at < rows.length && rows[at].matches(".add, .say, .note") && (added.length || rows[at].matches(".add"))) {
      (rows[at].matches(".add") ? added : below).push(rows[at]);
      at += 1;
    }
    for (let place = 0; place < Math.max(removed.length, added.length); place += 1) made.push(pair(removed[place], added[place]));
    made.push(...below);
    if (!removed.length && !added.length && !below.length) {
      made.push(pair(rows[at], rows[at]));
      at += 1;
    }
  }
  for (const row of made) if (row.cells.length === 1) row.cells[0].colSpan = 4;
  table.tBodies[0].replaceChildren(...made);
  table.classList.add("side");
}

function join(table) {
  table.tBodies[0].replaceChildren(...unified.get(table));
  table.classList.remove("side");
  unified.delete(table);
}

function apply() {
  root.toggleAttribute("data-hide-space", hidesSpace);
  for (const input of document.querySelectorAll("input[data-layout]")) input.checked = (input.dataset.layout === "side") === isSide;
  for (const input of document.querySelectorAll("input[data-hide-space]")) input.checked = hidesSpace;
  const wanted = isSide && WIDE.matches;
  let hasMoved = false;
  for (const table of document.querySelectorAll("table.diff")) {
    if (unified.has(table) === wanted) continue;
    (wanted ? split : join)(table);
    hasMoved = true;
  }
  if (hasMoved) document.dispatchEvent(new Event("gatehouse:laid-out"));
}

export function watchDiffs() {
  document.addEventListener("change", ({ target }) => {
    if (target.matches("input[data-layout]")) {
      isSide = target.dataset.layout === "side";
      store("diff-layout", target.dataset.layout);
      apply();
    } else if (target.matches("input[data-hide-space]")) showSpace(!target.checked);
  });
  WIDE.addEventListener("change", apply);
  let isWaiting = false;
  new MutationObserver((changes) => {
    if (isWaiting || !changes.some((one) => one.addedNodes.length)) return;
    isWaiting = true;
    queueMicrotask(() => { isWaiting = false; apply(); });
  }).observe(document.body, { childList: true, subtree: true });
  apply();
}
