// Ticked changes of a file. While any is ticked, "Approve" means these and nothing else. What a person ticked, typed and scrolled goes
// on to the card that takes the place of theirs, as far as the changes read the same there.
const boxes = (card) => [...card.querySelectorAll("input[data-hunk]")];
const ticked = (card) => boxes(card).filter((box) => box.checked);

// The buttons of a card as its ticks say.
export function showTicks(card) {
  const part = card.querySelector("[data-part]");
  if (!part) return;
  const chosen = ticked(card).length;
  const whole = card.querySelector('[data-key="a"]:not([data-part])');
  const hadFocus = document.activeElement === part || document.activeElement === whole;
  part.hidden = !chosen;
  whole.hidden = Boolean(chosen);
  card.querySelector('[data-role="rest"]').hidden = !chosen;
  const number = boxes(card).length;
  part.textContent = `Approve ${chosen} of ${number} changes`;
  if (hadFocus) (chosen ? part : whole).focus({ preventScroll: true });
}

// A number key: tick that change of the card, or take the tick away. Whether there is one.
export function tickNumber(card, number) {
  const box = card.querySelector(`input[data-hunk][data-number="${number}"]:not(:disabled)`);
  if (!box) return false;
  box.click();
  box.closest(".hunk").scrollIntoView({ block: "nearest" });
  return true;
}

// Puts a newer card in the place of one that still waits. How many ticks that had, and how many the newer one keeps.
export function takePlace(old, card) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const top = old.querySelector(".pane-scroll").scrollTop;
  const chosen = ticked(old).map((box) => box.dataset.hunk);
  for (const [name, field] of [["value", '[data-key="r"]'], ["checked", 'input[data-rest][value="drop"]']]) {
    const [was, is] = [old, card].map((one) => one.querySelector(field));
    if (was && is) is[name] = was[name];
  }
  const kept = tickAgain(card, chosen);
  old.replaceWith(card);
  if (focused) (twin(card, focused) || card).focus({ preventScroll: true });
  card.querySelector(".pane-scroll").scrollTop = top;
  const more = card.querySelector("[data-show-all]");
  if (more && old.querySelector(".diff") && !old.querySelector("[data-show-all]")) {
    toTick.set(card, chosen);
    queueMicrotask(() => more.click());
  }
  return { had: chosen.length, kept };
}

// What a newer card has in the place of what had the focus.
function twin(card, focused) {
  const { hunk, key } = focused.dataset;
  if (hunk) return card.querySelector(`input[data-hunk="${CSS.escape(hunk)}"]:not(:disabled)`);
  if (key) return card.querySelector(`[data-key="${CSS.escape(key)}"]:not([hidden])`);
  return focused.matches(".diff") ? card.querySelector(".diff") : null;
}

// Ticks that are made once a card's whole diff is there.
const toTick = new WeakMap();

function tickAgain(card, chosen) {
  const kept = boxes(card).filter((box) => !box.disabled && chosen.includes(box.dataset.hunk));
  for (const box of kept) box.checked = true;
  showTicks(card);
  return kept.length;
}

export function watchHunks() {
  document.addEventListener("change", (event) => {
    const box = event.target.closest && event.target.closest("input[data-hunk]");
    if (box) showTicks(box.closest(".card"));
  });
  document.addEventListener("htmx:configRequest", (event) => {
    const button = event.detail.elt;
    if (!("part" in button.dataset)) return;
    const card = button.closest(".card");
    event.detail.parameters.hunks = ticked(card).map((box) => box.dataset.hunk).join(",");
    event.detail.parameters.rest = card.querySelector("input[data-rest]:checked").value;
  });
  // "Show the other lines" puts the whole diff in the place of its beginning: the ticks stay.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const card = event.detail.target.closest && event.detail.target.closest(".card");
    if (card && event.detail.shouldSwap && !toTick.has(card)) toTick.set(card, ticked(card).map((box) => box.dataset.hunk));
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const card = event.target.closest && event.target.closest(".card");
    if (!card || !toTick.has(card)) return;
    tickAgain(card, toTick.get(card));
    toTick.delete(card);
  });
  // A page that was reloaded keeps its ticks in some browsers.
  for (const card of document.querySelectorAll(".card")) showTicks(card);
}
