// Boxes that scroll say so at their lower edge while there is more below: a bar that only shows while it is used is overlooked.
const BOXES = ".list, .pane-scroll, .bar nav, .output, details.record pre, #confirm-list";
const NEARLY_PX = 2;

function show(box) {
  const below = box.scrollHeight - box.clientHeight - box.scrollTop;
  box.toggleAttribute("data-more", Math.max(below, box.scrollWidth - box.clientWidth - box.scrollLeft) > NEARLY_PX);
}

export function watchOverflow() {
  const seen = new WeakSet();
  const sizes = new ResizeObserver((entries) => { for (const box of new Set(entries.map(({ target }) => target.closest(BOXES)))) if (box) show(box); });
  const find = () => {
    for (const box of document.querySelectorAll(BOXES)) {
      if (!seen.has(box)) {
        seen.add(box);
        sizes.observe(box);
        box.addEventListener("scroll", () => show(box), { passive: true });
      }
      // What is drawn late (content-visibility) is then of another height.
      if (box.matches(".pane-scroll")) for (const part of box.children) sizes.observe(part);
      show(box);
    }
  };
  let isWaiting = false;
  new MutationObserver(() => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; find(); });
  }).observe(document.body, { childList: true, subtree: true });
  find();
}
