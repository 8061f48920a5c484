// What a person points at, or is in with the keyboard, stays where it is on the screen when its list is fetched anew, whatever comes above it:
// `data-place="name"`. Where neither is in the list, that is what it shows first, once its beginning is out of sight.
const PLACE = "[data-place]";
let pointed = null;

export function watchPlaces() {
  const hear = (name, act) => document.addEventListener(name, act, { passive: true });
  hear("pointermove", (event) => { pointed = event.pointerType === "touch" ? null : { x: event.clientX, y: event.clientY }; });
  document.documentElement.addEventListener("pointerleave", () => { pointed = null; });
  let were = [];
  hear("htmx:beforeSwap", ({ detail: { target } }) => { were = placesIn(target); });
  hear("htmx:afterSwap", ({ detail: { target } }) => {
    for (const { name, top } of were) {
      const one = target.querySelector(`[data-place="${CSS.escape(name)}"]`);
      if (!one) continue;
      scrollBy({ top: one.getBoundingClientRect().top - top, behavior: "instant" });
      return;
    }
  });
}

// What is to stay, and what it is in: that stays where the thing itself is gone.
function placesIn(target) {
  const found = [];
  for (let one = first(target); one && target.contains(one); one = one.parentElement.closest(PLACE)) {
    found.push({ name: one.dataset.place, top: one.getBoundingClientRect().top });
  }
  return found;
}

function first(target) {
  const here = (one) => (one && target.contains(one) ? one.closest(PLACE) : null);
  const onIt = here(pointed && document.elementFromPoint(pointed.x, pointed.y)) ?? here(document.activeElement);
  if (onIt || target.getBoundingClientRect().top >= 0) return onIt;
  return [...target.querySelectorAll(PLACE)].find((one) => one.getBoundingClientRect().bottom > 0);
}
