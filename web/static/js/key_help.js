// The keys: one table, which the dialog behind `?` shows, and the switch for those that are a single character (WCAG 2.2, 2.1.4), which
// this browser remembers.
import { $ } from "./say.js";

// [what is pressed, what it does], by where.
export const KEYS = [
  ["Everywhere", [["?", "show these keys"], ["Esc", "close a dialog, leave a field"], ["z", "undo what the message in the corner says"], ["Tab", "go on to the next control"]]],
  ["Inbox", [
    ["j", "next request"], ["k", "the one before"], ["/", "search"], ["x", "tick it, to answer several together"],
    ["X", "tick all that are alike"], ["Esc", "tick none"], ["⏎", "look at a set of changes"],
  ]],
  ["A request", [
    ["a", "approve"], ["d", "deny"], ["r", "type a reason for the denial"], ["A", "allow or deny for longer"],
    ["1 to 9", "tick that part of a change"], ["↑ ↓", "walk through the lines"], ["c", "comment on a line"], ["m", "apply the merge"], ["g", "give the agent your version"],
  ]],
];

const OFF = "gatehouse.keys";
export const areKeysOn = () => localStorage.getItem(OFF) !== "off";
const isTyped = ({ target }) => /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(checkbox|radio)$/.test(target.type);
// The space bar presses what has the focus, as everywhere.
const isOneCharacter = (event) => event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey;

export function watchKeyHelp() {
  const dialog = $("keys");
  // INVARIANT: before every other listener, so that a key that is switched off reaches none of them.
  window.addEventListener("keydown", (event) => {
    if (dialog?.open) event.stopImmediatePropagation(); // what is behind it isn't answered
    else if (!isOneCharacter(event) || isTyped(event)) return;
    else if (!areKeysOn()) event.stopImmediatePropagation();
    else if (event.key === "?" && dialog && !document.querySelector("dialog[open]")) open();
  }, true);
  if (!dialog) return;
  dialog.querySelector("[data-role=list]").replaceChildren(...KEYS.flatMap(([where, rows]) => [heading(where), list(rows)]));
  const keysOn = $("keys-on");
  keysOn.checked = areKeysOn();
  keysOn.addEventListener("change", () => localStorage.setItem(OFF, keysOn.checked ? "on" : "off"));
  $("show-keys").addEventListener("click", open);

  function open() {
    keysOn.checked = areKeysOn();
    dialog.showModal();
  }
}

function heading(text) {
  const made = document.createElement("h3");
  made.textContent = text;
  return made;
}

function list(rows) {
  const made = document.createElement("dl");
  made.className = "key-list";
  for (const [key, does] of rows) {
    const [row, name, box, what] = ["div", "dt", "kbd", "dd"].map((tag) => document.createElement(tag));
    box.textContent = key;
    what.textContent = does;
    name.append(box);
    row.append(name, what);
    made.append(row);
  }
  return made;
}
