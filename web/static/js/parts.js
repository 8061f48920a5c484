// Parts of the page that are fetched anew upon news (`hx-trigger="gatehouse:..."`). What a person does in one counts for more than news
// of it: an answer that was asked for before theirs may be from before it, and would show again what they have just changed. It is
// dropped, and asked for again. Focus, and which part of a longer list is shown, stay.
import { isAskedIn } from "./confirm.js";
import { soon } from "./live.js";
import { $ } from "./say.js";

const PART = '[hx-trigger*="gatehouse:"]';
// What tells a control from the others of its part.
const DOES = ["hx-post", "hx-delete", "hx-get", "href"];

// Of each part, the person's requests: how many were sent, and how many of these are under way.
const sent = new WeakMap();
const underWay = new WeakMap();
// A request for news -> how many of the person's were sent before it.
const asOf = new WeakMap();
// Those that news came of meanwhile.
const missed = new Set();

const number = (counts, part) => counts.get(part) ?? 0;
const isNews = ({ elt, verb }) => verb === "get" && elt.matches(PART);
const partsOf = (elt, target) => [...document.querySelectorAll(PART)].filter((part) => part.contains(elt) || part.contains(target) || target.contains(part));
const isTaken = (part) => number(underWay, part) > 0 || isAskedIn(part);
const fetchAnew = (part) => soon(part.getAttribute("hx-trigger").match(/gatehouse:(\w+)/)[1]);

export function watchParts() {
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (isNews(detail)) detail.path = detail.elt.dataset.shows ?? detail.path;
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { requestConfig: wanted } = event.detail;
    if (!isNews(wanted) || !isTaken(wanted.elt)) return;
    event.preventDefault();
    missed.add(wanted.elt);
  });
  document.addEventListener("htmx:beforeSend", ({ detail: { xhr, target, requestConfig: wanted } }) => {
    if (isNews(wanted)) asOf.set(xhr, number(sent, wanted.elt));
    else for (const part of partsOf(wanted.elt, target)) follow(part, xhr);
  });
  // An answer that didn't come in time: who hears of no more news would not have what these were about.
  document.addEventListener("htmx:timeout", ({ detail: { requestConfig: wanted } }) => {
    if (isNews(wanted) && wanted.elt.isConnected) fetchAnew(wanted.elt);
  });
  let focused = "";
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    const { xhr, target, requestConfig: wanted } = detail;
    focused = likeFocused(target);
    if (isNews(wanted) && (isTaken(wanted.elt) || asOf.get(xhr) !== number(sent, wanted.elt))) {
      detail.shouldSwap = false;
      missed.add(wanted.elt);
      catchUp();
    } else if (detail.shouldSwap && wanted.verb === "get" && wanted.elt !== target && target.matches(PART)) target.dataset.shows = wanted.path;
  });
  document.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
    if (focused && document.activeElement === document.body) target.querySelector(focused)?.focus({ preventScroll: true });
  });
  $("confirm").addEventListener("close", () => setTimeout(catchUp)); // when what was confirmed is under way
}

// Fetches what was missed of the parts that nobody acts on any more.
function catchUp() {
  for (const part of missed) {
    if (part.isConnected && isTaken(part)) continue;
    missed.delete(part);
    if (part.isConnected) fetchAnew(part);
  }
}

function follow(part, xhr) {
  sent.set(part, number(sent, part) + 1);
  underWay.set(part, number(underWay, part) + 1);
  xhr.addEventListener("loadend", () => {
    underWay.set(part, number(underWay, part) - 1);
    catchUp();
  });
}

// Finds what has the focus again in what takes the place of `element`. What has an id htmx finds itself.
export function likeFocused(element) {
  const one = document.activeElement;
  if (!element.contains(one) || one.id) return "";
  if (one.matches("details[data-keep] > summary")) return `details[data-keep="${CSS.escape(one.parentElement.dataset.keep)}"] > summary`;
  if (one.matches("[type=radio], [type=checkbox]")) return `[name="${CSS.escape(one.name)}"][value="${CSS.escape(one.value)}"]`;
  if (one.matches("select")) return `select[name="${CSS.escape(one.name)}"]`;
  const does = DOES.find((name) => one.hasAttribute(name));
  return does ? `${one.localName}[${does}="${CSS.escape(one.getAttribute(does))}"]` : "";
}
