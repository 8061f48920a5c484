// Nothing on the page is moved or replaced while a person presses on it: a click needs its press and its release in one place. What
// came in between would take the click away, or have it from a person who meant another thing. It waits for the release.
let isPressed = false;
const waiting = [];

// Does it now, or once nothing is pressed; always in the order of the calls.
export function whenReleased(act) {
  if (isPressed || waiting.length) waiting.push(act);
  else act();
}

function release() {
  if (!isPressed) return;
  isPressed = false;
  setTimeout(catchUp); // the click comes after the release, in the same turn
}

function catchUp() {
  while (waiting.length && !isPressed) {
    try {
      waiting.shift()();
    } catch (error) {
      reportError(error);
    }
  }
}

export function watchHand() {
  const hear = (name, act) => window.addEventListener(name, act, { capture: true, passive: true });
  // A list that drops down keeps its release to itself.
  hear("pointerdown", (event) => { if (event.button === 0 && !event.target.closest("select")) isPressed = true; });
  for (const name of ["pointerup", "pointercancel"]) hear(name, release);
  // Released where the page heard nothing of it.
  hear("blur", (event) => { if (event.target === window) release(); });
  hear("pointermove", (event) => { if (!event.buttons) release(); });
  // The space bar presses with the key's release, Enter at once.
  hear("keydown", (event) => { if (event.key === " ") isPressed = true; });
  hear("keyup", (event) => { if (event.key === " ") release(); });
  document.addEventListener("htmx:beforeSend", ({ detail: { xhr } }) => {
    const put = xhr.onload;
    xhr.onload = () => whenReleased(put);
  });
}
