// The page of one session's changed files: all is ticked, but what a person took the tick from or commented on. What is shown goes back
// with each answer; the server refuses an answer to anything else. Nothing is replaced under a person's hand.
import { commentsOf, forgetComments, keepPlace, placesOf } from "./comments.js";
import { boxes as hunksIn, keepTicks, ticked as tickedIn } from "./hunks.js";
import { $ } from "./say.js";
import { looksNew } from "./steady.js";

const page = () => document.querySelector("article.changes.pane");

// Where the ticks of a path differ from its folder's: of a file, or of a folder with all that is in it ("" is all). The boxes only show
// this: it holds for what isn't loaded, for what left the page, and for what the agent changes again.
// It stays when the page is loaded anew, in this tab.
const choices = new Map();
let session = "";
const kept = () => `ticks:${session}`;

// Paths are compared as the bytes that the server encoded, one character each.
const decoded = (key) => atob(key.replaceAll("-", "+").replaceAll("_", "/"));
const pathOf = (box) => decoded(box.dataset.path);
const keyOf = (path) => btoa(path || "/").replaceAll("+", "-").replaceAll("/", "_");
const above = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/")));
const isInside = (path, folder) => path !== folder && (!folder || path.startsWith(`${folder}/`));

function isTaken(path) {
  for (let at = path; ; at = above(at)) {
    if (choices.has(at)) return choices.get(at);
    if (!at) return true;
  }
}

function choose(path, wanted) {
  for (const one of [...choices.keys()]) if (one === path || isInside(one, path)) choices.delete(one);
  if (isTaken(path) !== wanted) choices.set(path, wanted);
  sessionStorage.setItem(kept(), JSON.stringify([...choices]));
}

// The hunks of a file that are on the page, if one of them has no tick; null where it is approved as a whole.
function partOf(id) {
  const file = $(`file-${id}`);
  return file && hunksIn(file).some((one) => !one.checked) ? tickedIn(file).map((one) => one.dataset.hunk) : null;
}

// How many files a choice is about. A folder that it is in is opened where that isn't loaded; null until it is.
function sizeOf(path, boxes) {
  const box = boxes.get(path);
  if (box) return "takeFolder" in box.dataset ? Number(box.dataset.files) : "take" in box.dataset ? 1 : 0;
  for (let at = above(path); at; at = above(at)) {
    const folder = boxes.get(at)?.nextElementSibling;
    if (!folder) continue;
    if (!folder.querySelector(":scope > ul")) {
      folder.open = true;
      return null;
    }
    // One that isn't listed may wait, too.
    return folder.querySelector(":scope > ul > [data-more]") ? 1 : 0;
  }
  return document.querySelector(".tree section > ul > [data-more]") ? 1 : 0;
}

// The comments stay with their files. What was commented on goes back: it isn't approved.
function takeFromCommented(boxes) {
  for (const box of boxes.values()) if ("take" in box.dataset || "tick" in box.dataset) keepPlace(idOf(box), session, box.dataset.path);
  for (const [, key] of placesOf(session)) choose(decoded(key), false);
}

const idOf = (box) => box.dataset.take ?? box.dataset.tick.split(":")[0];

function show() {
  const card = page();
  if (!card || card.dataset.status === "done") return;
  if (session !== card.dataset.changes) {
    choices.clear();
    session = card.dataset.changes;
    for (const [path, wanted] of JSON.parse(sessionStorage.getItem(kept()) ?? "[]")) choices.set(path, wanted);
  }
  const all = [...document.querySelectorAll("input[data-path]")];
  const boxes = new Map(all.map((one) => [pathOf(one), one]).reverse()); // the first of those of one path
  takeFromCommented(boxes);
  const sizes = new Map([...choices.keys()].map((path) => [path, sizeOf(path, boxes)]));
  // What isn't listed is never taken: it was answered, or nobody sees its tick.
  for (const [path, wanted] of [...choices]) if (wanted && sizes.get(path) !== null && !boxes.has(path)) choose(path, false);
  const isLoading = [...sizes.values()].includes(null);
  // How many files of a folder are taken, by all choices in it.
  const takenIn = (folder, size) => [...choices].reduce((sum, [path, wanted]) => sum + (isInside(path, folder) ? (wanted ? 1 : -1) * sizes.get(path) : 0), isTaken(folder) ? size : 0);
  for (const box of all) {
    if ("tick" in box.dataset) { if (commentsOf(idOf(box)).length) box.checked = false; continue; }
    const files = Number(box.dataset.files ?? 1);
    const taken = "take" in box.dataset ? Number(isTaken(pathOf(box))) : takenIn(pathOf(box), files);
    box.checked = taken > 0;
    box.indeterminate = taken > 0 && (taken < files || ("take" in box.dataset && partOf(box.dataset.take) !== null));
  }
  for (const file of card.querySelectorAll("article[data-file]")) file.querySelector("[data-approves]").textContent = partOf(file.dataset.file) ? "Approve ticked" : "Approve this";
  const plain = Number(card.dataset.plain);
  const taken = takenIn("", plain);
  const apart = card.querySelectorAll("[data-tick]:checked").length;
  const waiting = Number(card.dataset.waiting);
  const back = placesOf(session).length;
  const number = taken + apart;
  const say = (role, text) => { for (const one of document.querySelectorAll(`[data-role="${role}"]`)) one.textContent = text; };
  const files = (count) => `${count.toLocaleString("en")} ${count === 1 ? "file" : "files"}`;
  say("ticked", `${taken.toLocaleString("en")} of ${plain.toLocaleString("en")} ticked`);
  say("question", number ? `Apply ${files(number)}${back ? ", and send back what you commented on" : ""}?` : back ? "Send back what you commented on?" : "Nothing is ticked");
  const stay = waiting - number - back;
  const inPart = Object.keys(parts()).length;
  say("left-out", [inPart ? `Of ${files(inPart)} only what is ticked; the rest waits.` : "", back ? `${files(back)} ${back === 1 ? "goes" : "go"} back with your comments.` : "", stay > 0 ? `${files(stay)} ${stay === 1 ? "waits" : "wait"} on.` : "", "Can be undone."].filter(Boolean).join(" "));
  say("approve", number || !back ? `Approve ${number.toLocaleString("en")} of ${waiting.toLocaleString("en")}` : `Send ${files(back)} back`);
  card.querySelector("[data-approve-ticked]").disabled = isLoading || (!number && !back);
}

// Of the files that are approved in part, what of each.
function parts() {
  const taken = [...document.querySelectorAll("article input[data-take]")].filter((box) => isTaken(pathOf(box)));
  return Object.fromEntries(taken.map((box) => [box.dataset.take, partOf(box.dataset.take)]).filter(([, chosen]) => chosen?.length));
}

function changedTick({ target }) {
  if (!page()) return;
  const file = target.closest("article[data-file]");
  const box = file?.querySelector("input[data-take]");
  if (target.matches("[data-hunk]")) { if (box) choose(pathOf(box), tickedIn(file).length > 0); }
  else if (box === target && target.checked && partOf(box.dataset.take)) {
    for (const one of hunksIn(file)) one.checked = true;
    keepTicks(file);
    choose(pathOf(target), true);
  } else if (target.matches("[data-path]:not([data-tick])")) choose(pathOf(target), target.checked);
  else if (!target.matches("[data-tick]")) return;
  show();
}

function filter({ target }) {
  if (!target.matches("[data-filter-files]")) return;
  const wanted = target.value.trim().toLowerCase();
  for (const leaf of document.querySelectorAll(".tree .leaf[data-name]")) leaf.hidden = !leaf.dataset.name.toLowerCase().includes(wanted);
}

// What goes with an answer: what lost its tick, what is ticked in it all the same, what is ticked that is set apart, and comments.
function configure({ detail }) {
  const card = detail.elt.closest("article.changes.pane");
  if (!card || detail.verb !== "post") return;
  const listed = (wanted) => [...choices].filter(([, one]) => one === wanted).map(([path]) => keyOf(path)).join(",");
  const said = placesOf(session).map(([id]) => id);
  Object.assign(detail.parameters, {
    without: said.join(","),
    without_below: listed(false),
    with_below: listed(true),
    ticked: [...card.querySelectorAll("[data-tick]:checked")].map((one) => one.dataset.tick).join(","),
    hunks: JSON.stringify(detail.parameters.one ? { [detail.parameters.one]: partOf(detail.parameters.one) ?? undefined } : parts()),
    comments: JSON.stringify(Object.fromEntries(said.map((id) => [id, commentsOf(id)]))),
  });
}

// What was answered has neither comments nor a choice. Those of a file that changed again have gone over to it by then.
function forgetAnswered({ requestConfig: { verb, parameters, elt } }) {
  if (verb !== "post" || page().querySelector(".notice.error")) return;
  const ids = parameters.one ? [parameters.one] : Object.keys(JSON.parse(parameters.comments || "{}"));
  const answered = parameters.one ? [elt.closest("[data-file]").querySelector("[data-path]").dataset.path] : placesOf(session).filter(([id]) => ids.includes(id)).map(([, key]) => key);
  for (const key of answered) choices.delete(decoded(key));
  forgetComments(ids);
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
  document.addEventListener("htmx:afterSettle", ({ target, detail }) => {
    const card = page();
    if (!card) return;
    if (target.id === "main") {
      for (const one of card.querySelectorAll("[data-tick]")) one.checked = ticked.includes(one.dataset.tick);
      looksNew(card);
      card.focus({ preventScroll: true });
      show();
      forgetAnswered(detail);
    }
    show();
  });
  show();
}
