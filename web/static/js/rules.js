// The rules page: finds rules by words.
import { setStates, statesIn } from "./opened.js";
import { $ } from "./say.js";

let before = null; // what was folded when the person began to look for words

export function watchRules() {
  const find = $("find-rule");
  if (!find) return;
  find.addEventListener("input", show);
  document.addEventListener("htmx:afterSwap", (event) => { if (event.target.id === "rules") show(); });
}

// Every word must be somewhere in a row. While words are looked for, groups are open where they hold a row, and gone elsewhere.
function show() {
  const sought = $("find-rule").value.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = [...$("rules").querySelectorAll("details.rules-of")];
  if (sought.length) before ??= statesIn($("rules"));
  let found = 0;
  for (const row of $("rules").querySelectorAll("table.rules tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !sought.every((word) => text.includes(word));
    found += row.hidden ? 0 : 1;
  }
  for (const group of groups) {
    group.hidden = sought.length > 0 && !group.querySelector("tbody tr:not([hidden])");
    if (sought.length) group.open = !group.hidden;
  }
  if (!sought.length && before) {
    setStates($("rules"), before);
    before = null;
  }
  $("no-such-rule").hidden = !sought.length || found > 0;
}
