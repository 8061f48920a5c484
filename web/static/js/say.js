// What the page tells a person: aloud for screen readers, and as a message in the corner when something failed.
import { get } from "./get.js";

export const $ = (id) => document.getElementById(id);

export function say(text) {
  $("said").textContent = text;
}

export function toast(text) {
  const box = $("toast");
  box.firstElementChild.textContent = text;
  box.hidden = false;
}

// What a person should see and need not act on: beside the page, for a while.
const QUIET_MS = 6000;
let quietTimer = 0;
export function quietly(text) {
  const box = $("quietly");
  clearTimeout(quietTimer);
  box.textContent = text;
  quietTimer = setTimeout(() => { box.textContent = ""; }, QUIET_MS);
}

// What was just done, with its undo: it comes beside an answer, stays for a while, and longer while a person is at it.
const DONE_MS = 10000;
let doneTimer = 0;
function forgetDone() {
  const box = $("done");
  if (box.matches(":hover, :focus-within")) doneTimer = setTimeout(forgetDone, 1000);
  else {
    const empty = Object.assign(document.createElement("div"), { id: "done", className: "toast", role: "status" });
    box.replaceWith(empty); // with what it would fetch
  }
}

// What a person pressed and takes longer says so, with how far it is.
const SLOW_MS = 400;
export function watchSlow() {
  document.addEventListener("htmx:beforeSend", ({ detail: { xhr, elt, requestConfig: { verb } } }) => {
    if (verb === "get") return;
    const button = elt.matches("form") ? elt.querySelector("[type=submit], button") : elt;
    const label = shownLabel(button);
    const session = (elt.closest("[data-changes]")?.dataset.changes ?? $("session-head")?.dataset.session) || "";
    const began = performance.now();
    let timer = setTimeout(tell, SLOW_MS);
    xhr.addEventListener("loadend", () => { clearTimeout(timer); timer = 0; $("slow").replaceChildren(); });

    async function tell() {
      const { ok, text } = session ? await get(`/parts/progress/${encodeURIComponent(session)}`).catch(() => ({})) : {};
      if (!timer) return;
      const how = document.createElement("span");
      how.textContent = `${Math.round((performance.now() - began) / 1000)} s`;
      if (ok && text.trim()) how.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
      $("slow").replaceChildren(`${label}: `, how);
      timer = setTimeout(tell, SLOW_MS);
    }
  });
}

function shownLabel(button) {
  const copy = button.cloneNode(true);
  for (const key of copy.querySelectorAll("kbd")) key.remove();
  return copy.textContent.trim() || button.getAttribute("aria-label") || "Doing it";
}

export function watchDone() {
  document.addEventListener("htmx:oobAfterSwap", ({ detail: { target } }) => {
    if (target.id !== "done") return;
    clearTimeout(doneTimer);
    doneTimer = setTimeout(forgetDone, DONE_MS);
    const words = $("done").querySelector("span")?.textContent;
    if (words && $("said").textContent !== words) say(words);
  });
}

export function watchErrors() {
  $("toast").querySelector("button").addEventListener("click", () => { $("toast").hidden = true; });
  document.addEventListener("htmx:responseError", (event) => {
    let text = `Gatehouse answered ${event.detail.xhr.status}`;
    try {
      const body = JSON.parse(event.detail.xhr.responseText);
      text = body.remedy ? `${body.why}; ${body.remedy}` : body.why;
    } catch { /* no JSON: the status has to do */ }
    toast(text);
  });
  // What carries something out isn't given up after a while, as what only shows something is: a long undo would be done all the same.
  document.addEventListener("htmx:configRequest", (event) => { if (event.detail.verb !== "get") event.detail.timeout = 0; });
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, (event) => toast(event.detail.requestConfig.verb === "get"
      ? "Gatehouse does not answer. What you see may be old."
      : "Gatehouse does not answer. Whether what you asked for was done is shown here once it does."));
  }
}
