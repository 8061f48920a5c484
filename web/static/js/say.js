// What the page tells a person: aloud for screen readers, and as a message in the corner when something failed.
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
