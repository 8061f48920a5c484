// The rules page: finds rules by words, and keeps what is folded as the person left it when the list is fetched anew.
import { $ } from "./say.js";

const touched = new Map(); // category -> open, where the person folded or unfolded it

export function watchRules() {
  const find = $("find-rule");
  if (!find) return;
  find.addEventListener("input", show);
  document.addEventListener("click", (event) => {
    const group = event.target.closest("summary")?.parentElement;
    if (group?.dataset.group && !words().length) touched.set(group.dataset.group, !group.open);
  });
  document.addEventListener("htmx:afterSwap", (event) => { if (event.target.id === "rules") show(); });
}

const words = () => $("find-rule").value.toLowerCase().split(/\s+/).filter(Boolean);

// Every word must be somewhere in a row. While words are looked for, groups are open where they hold a row, and gone elsewhere.
function show() {
  const sought = words();
  let found = 0;
  for (const row of document.querySelectorAll("#rules table.rules tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !sought.every((word) => text.includes(word));
    found += row.hidden ? 0 : 1;
  }
  for (const group of document.querySelectorAll("#rules details[data-group]")) {
    const rows = group.querySelectorAll("tbody tr:not([hidden])").length;
    group.hidden = sought.length > 0 && rows === 0;
    group.dataset.short ??= String(group.open);
    group.open = sought.length ? rows > 0 : (touched.get(group.dataset.group) ?? group.dataset.short === "true");
  }
  $("no-such-rule").hidden = !sought.length || found > 0;
}
