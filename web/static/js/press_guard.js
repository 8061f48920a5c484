// Guards a press: nothing on the page is moved or replaced while a person presses on it: a click needs its press and its release in one place. What
// came in between would take the click away, or have it from a person who meant another thing. It waits for the release.
let isPressed = false;
let tapTimer = 0;
const waiting = [];

// How long after a finger or pen is lifted its click may come: unlike a mouse's, in a later turn. Without one it was no tap.
const TAP_MS = 400;

// Does it now, or once nothing is pressed; always in the order of the calls.
export function whenReleased(act) {
  if (isPressed || waiting.length) waiting.push(act);
  else act();
}

function forgetTap() {
  clearTimeout(tapTimer);
  tapTimer = 0;
}

function press() {
  forgetTap();
  isPressed = true;
}

function release() {
  forgetTap();
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

function lifted(event) {
  if (event.pointerType === "mouse") return release();
  forgetTap();
  tapTimer = setTimeout(release, TAP_MS);
}

export function guardPresses() {
  const hear = (name, act) => window.addEventListener(name, act, { capture: true, passive: true });
  // A list that drops down keeps its release to itself, that of a key as well.
  const isList = (event) => event.target.closest("select") !== null;
  hear("pointerdown", (event) => { if (event.button === 0 && !isList(event)) press(); });
  hear("pointerup", lifted);
  hear("pointercancel", release);
  hear("click", () => { if (tapTimer) release(); });
  // Released where the page heard nothing of it.
  hear("blur", (event) => { if (event.target === window) release(); });
  hear("pointermove", (event) => { if (!event.buttons && !tapTimer) release(); });
  // The space bar presses with the key's release, Enter at once. While Command is held, a Mac tells of no release; and with another
  // key beside it the release can be that of another character.
  hear("keydown", (event) => { if (event.key === " " && !event.metaKey && !isList(event)) press(); });
  hear("keyup", (event) => { if (event.key === " " || event.code === "Space") release(); });
  document.addEventListener("htmx:beforeSend", ({ detail: { xhr } }) => {
    const put = xhr.onload;
    xhr.onload = () => whenReleased(put);
  });
}
