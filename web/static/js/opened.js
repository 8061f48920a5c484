// What a person unfolded stays so when its part of the page is fetched anew: `<details data-keep="name">`.

export function watchOpened() {
  let opened = new Set();
  document.addEventListener("htmx:beforeSwap", (event) => {
    opened = new Set([...event.detail.target.querySelectorAll("details[data-keep][open]")].map((one) => one.dataset.keep));
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const one of event.detail.target.querySelectorAll("details[data-keep]")) one.open ||= opened.has(one.dataset.keep);
  });
}
