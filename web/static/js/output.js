// What the agent prints, read as it comes and added as text. Old lines are dropped: the file has them.
import { get } from "./get.js";
import { screenShown } from "./live.js";
import { $ } from "./say.js";

const MOST_CHARS = 1_000_000;
let isReading = false;
let readAgain = false;
let chars = 0;

export async function readOutput() {
  const box = $("output");
  if (!box) return;
  readAgain = true;
  if (isReading) return;
  isReading = true;
  try {
    while (readAgain) {
      readAgain = false;
      const { ok, text } = await get(`/api/sessions/${encodeURIComponent(box.dataset.session)}/output?offset=${Number(box.dataset.offset)}`);
      if (!ok) break;
      const part = JSON.parse(text);
      if (part.next_offset > Number(box.dataset.offset)) readAgain = true;
      box.dataset.offset = part.next_offset;
      if (part.text) append(box, part.text);
    }
  } catch { /* the connection is lost: read again with the next one */ } finally { isReading = false; }
}

function append(box, text) {
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  box.append(document.createTextNode(text));
  chars += text.length;
  while (chars > MOST_CHARS && box.childNodes.length > 1) {
    chars -= box.firstChild.length;
    box.firstChild.remove();
  }
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

// A screen that takes long to draw is asked for less often.
export function watchScreen() {
  const screen = $("screen");
  if (!screen) return;
  let began = 0;
  screen.addEventListener("htmx:beforeRequest", () => { began = performance.now(); });
  screen.addEventListener("htmx:afterSwap", () => screenShown(performance.now() - began));
}
