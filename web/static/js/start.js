// The form that starts a session: the fields of the chosen preset, what its button starts, and the rest said in one line.
import { $ } from "./say.js";

export function watchStart() {
  const form = $("start");
  if (!form) return;
  form.addEventListener("input", () => show(form));
  form.addEventListener("click", ({ target }) => {
    const folder = target.closest("[data-folder]")?.dataset.folder;
    if (!folder) return;
    form.elements.workspace.value = folder;
    form.elements.workspace.focus();
    show(form);
  });
  show(form); // what a browser filled in when it came back to the page
}

function show(form) {
  const chosen = form.querySelector('[name="kind"]:checked');
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(chosen.value);
  $("start-noun").textContent = chosen.dataset.noun;
  for (const echo of form.querySelectorAll("[data-echo]")) echo.textContent = form.elements[echo.dataset.echo].value || "the folder";
  $("start-more").textContent = [...form.querySelectorAll("[data-says]")].map((one) => `${one.dataset.says} ${one.value || one.placeholder}`).join(", ");
}
