// The page of one session's changed files: all is ticked, but what a person took the tick from or commented on. What is shown goes back
// with each answer; the server refuses an answer to anything else. Nothing is replaced under a person's hand.
import { commentsOf } from "./comments.js";
import { looksNew } from "./steady.js";

const page = () => document.querySelector("article.changes.pane");
// Ids without a tick. They stay so when the page's content is fetched anew.
const off = new Set();

const boxesOf = (root) => [...root.querySelectorAll("input[data-take]")];
const isOff = (box) => off.has(box.dataset.take);
const idsHere = () => new Set([...document.querySelectorAll("[data-take], [data-file]")].map((one) => one.dataset.take || one.dataset.file));

function setTaken(ids, isTaken) {
  for (const id of ids) if (isTaken) off.delete(id); else off.add(id);
}

// The folders of the tree whose content isn't here, and that lost their tick as a whole.
const offFolders = () => [...new Map([...document.querySelectorAll("details[data-folder]")].filter((one) => !one.querySelector("ul") && !folderBox(one).checked).map((one) => [one.dataset.folder, one])).values()];
const folderBox = (folder) => folder.parentElement.querySelector(":scope > input[data-take-folder]");

function showFolders() {
  // Inner ones first: what is in them counts in the outer ones.
  for (const folder of [...document.querySelectorAll("details[data-folder]")].reverse()) {
    const list = folder.querySelector(":scope > ul");
    if (!list) continue;
    const inner = [...list.querySelectorAll(":scope > li > input[data-take], :scope > li > input[data-take-folder]")];
    const box = folderBox(folder);
    box.checked = inner.length === 0 || inner.some((one) => one.checked || one.indeterminate);
    box.indeterminate = inner.some((one) => !one.checked || one.indeterminate) && box.checked;
  }
}

function show() {
  const card = page();
  if (!card || card.dataset.status === "done") return;
  const here = idsHere();
  const said = [...here].filter((id) => commentsOf(id).length);
  for (const id of said) off.add(id); // what goes back isn't approved
  for (const box of boxesOf(document)) box.checked = !isOff(box);
  showFolders();
  const plain = Number(card.dataset.plain);
  const without = [...off].filter((id) => here.has(id)).length + offFolders().reduce((sum, one) => sum + Number(one.dataset.files), 0);
  const taken = plain - without;
  const apart = card.querySelectorAll("[data-tick]:checked").length;
  const waiting = Number(card.dataset.waiting);
  const back = said.length;
  const number = taken + apart;
  const say = (role, text) => { for (const one of document.querySelectorAll(`[data-role="${role}"]`)) one.textContent = text; };
  const files = (count) => `${count.toLocaleString("en")} ${count === 1 ? "file" : "files"}`;
  say("ticked", `${taken.toLocaleString("en")} of ${plain.toLocaleString("en")} ticked`);
  say("question", number ? `Apply ${files(number)}${back ? ", and send back what you commented on" : ""}?` : back ? "Send back what you commented on?" : "Nothing is ticked");
  const stay = waiting - number - back;
  say("left-out", [back ? `${files(back)} ${back === 1 ? "goes" : "go"} back with your comments.` : "", stay > 0 ? `${files(stay)} ${stay === 1 ? "waits" : "wait"} on.` : "", "Can be undone."].filter(Boolean).join(" "));
  say("approve", number || !back ? `Approve ${number.toLocaleString("en")} of ${waiting.toLocaleString("en")}` : `Send ${files(back)} back`);
  card.querySelector("[data-approve-ticked]").disabled = !number && !back;
  for (const all of document.querySelectorAll("[data-take-all]")) {
    all.checked = taken > 0;
    all.indeterminate = taken > 0 && taken < plain;
  }
}

function takeFolder(folder, isTaken) {
  setTaken(boxesOf(folder).map((one) => one.dataset.take), isTaken);
  for (const one of [folder, ...folder.querySelectorAll("details[data-folder]")]) folderBox(one).checked = isTaken;
}

function changedTick({ target }) {
  if (!page()) return;
  if (target.matches("[data-take]")) setTaken([target.dataset.take], target.checked);
  else if (target.matches("[data-take-folder]")) {
    const key = target.nextElementSibling.dataset.folder;
    for (const one of document.querySelectorAll(`details[data-folder="${CSS.escape(key)}"]`)) takeFolder(one, target.checked);
  } else if (target.matches("[data-take-all]")) {
    setTaken(boxesOf(document).map((one) => one.dataset.take), target.checked);
    for (const one of document.querySelectorAll("details[data-folder]")) takeFolder(one, target.checked);
  } else if (!target.matches("[data-tick]")) return;
  show();
}

function filter({ target }) {
  if (!target.matches("[data-filter-files]")) return;
  const wanted = target.value.trim().toLowerCase();
  for (const leaf of document.querySelectorAll(".tree .leaf[data-name]")) leaf.hidden = !leaf.dataset.name.toLowerCase().includes(wanted);
}

// What goes with an answer: what lost its tick, what is ticked that is set apart, and comments.
function configure({ detail }) {
  const card = detail.elt.closest("article.changes.pane");
  if (!card || detail.verb !== "post") return;
  const here = idsHere();
  const said = Object.fromEntries([...here].map((id) => [id, commentsOf(id)]).filter(([, list]) => list.length));
  Object.assign(detail.parameters, {
    without: [...off].filter((id) => here.has(id)).join(","),
    without_below: offFolders().map((one) => one.dataset.folder).join(","),
    ticked: [...card.querySelectorAll("[data-tick]:checked")].map((one) => one.dataset.tick).join(","),
    comments: JSON.stringify(said),
  });
}

export function watchChanges() {
  document.addEventListener("htmx:configRequest", configure);
  document.addEventListener("change", changedTick);
  document.addEventListener("input", filter);
  document.addEventListener("gatehouse:comments", show);
  let ticked = [];
  document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    if (target.id === "main") ticked = [...document.querySelectorAll("[data-tick]:checked")].map((one) => one.dataset.tick);
  });
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    const card = page();
    if (!card) return;
    if (target.id === "main") {
      for (const one of card.querySelectorAll("[data-tick]")) one.checked = ticked.includes(one.dataset.tick);
      looksNew(card);
      card.focus({ preventScroll: true });
    }
    show();
  });
  show();
}
