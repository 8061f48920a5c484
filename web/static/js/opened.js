// What a person folded or unfolded stays so when its part of the page is fetched anew: `<details data-keep="name">`.

export function watchOpened() {
  let were = new Map();
  document.addEventListener("htmx:beforeSwap", (event) => { were = statesIn(event.detail.target); });
  document.addEventListener("htmx:afterSwap", (event) => setStates(event.detail.target, were));
}

// Name -> whether it is open, of all that are in an element.
export function statesIn(element) {
  return new Map([...element.querySelectorAll("details[data-keep]")].map((one) => [one.dataset.keep, one.open]));
}

export function setStates(element, states) {
  for (const one of element.querySelectorAll("details[data-keep]")) one.open = states.get(one.dataset.keep) ?? one.open;
}
