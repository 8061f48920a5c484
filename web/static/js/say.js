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
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, () => toast("Gatehouse does not answer. Nothing was changed, as far as this page knows."));
  }
}
