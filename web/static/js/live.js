// The WebSocket: tells the page what changed, and says so when it is lost. Every connection begins with the present state.
import { get } from "./get.js";
import { cardChanged } from "./inbox.js";
import { notify } from "./notify.js";
import { whenReleased } from "./press_guard.js";
import { readOutput } from "./output.js";
import { $, say } from "./say.js";

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 5000;
const PATIENCE_MS = 1200;
// A program may send hundreds of requests a second; a person reads none of them that fast.
const NETWORK_PAUSE_MS = 700;
// To show a long list takes a slow browser long. It is shown anew after so many times that: the rest of the time is the person's.
const PAUSE_TIMES = 10;
const LONGEST_PAUSE_MS = 20000;
let networkPauseMs = NETWORK_PAUSE_MS;
const SPEND_PAUSE_MS = 1500;
// What an agent prints, as its screen and between its requests.
const SCREEN_PAUSE_MS = 300;
const PRINTED_PAUSE_MS = 3000;
let screenPauseMs = SCREEN_PAUSE_MS;

let retryMs = FIRST_RETRY_MS;
let retryTimer = 0;
let lostTimer = 0;
let socket = null;
let greeted = false;
let farewell = "";
const ended = new Set();

// What waits: requests that have a row of their own, and how many changed files of each session that has more than a few.
// Of each waiting request, the session whose changed file it is about, else nothing.
let waitingIds = new Map();
let waitingChanges = new Map();
function count() {
  const number = waitingIds.size + [...waitingChanges.values()].reduce((sum, one) => sum + one, 0);
  $("pending-count").textContent = number || "";
  document.title = (number ? `(${number}) ` : "") + document.title.replace(/^\(\d+\) /, "");
}

export function connect() {
  clearTimeout(retryTimer);
  socket = new WebSocket(`ws://${location.host}/ws`);
  socket.onmessage = (message) => {
    const event = JSON.parse(message.data);
    notify(event);
    if (handlers[event.type]) whenReleased(() => handlers[event.type](event));
  };
  socket.onclose = lost;
}

const fileOf = (request) => (request.category === "filesystem" ? request.session_id : "");

const handlers = {
  hello(event) {
    retryMs = FIRST_RETRY_MS;
    farewell = "";
    clearTimeout(lostTimer);
    lostTimer = 0;
    $("lost").hidden = true;
    show("on", "live");
    const files = new Map(event.requests.map((one) => [one.id, fileOf(one)]));
    waitingIds = new Map(event.pending_ids.map((id) => [id, files.get(id) ?? ""]));
    waitingChanges = new Map(event.changes.map((one) => [one.session_id, one.waiting]));
    count();
    const shown = $("pane")?.dataset.request;
    if (shown) cardChanged(shown);
    // What was missed since the page was made is in its parts; also before its first hello, when nothing told it of news yet.
    for (const name of ["inbox", "session", "requests", "rules", "network", "spend", "changes", "quiet", "screen", "printing", "banner"]) fire(name);
    if (greeted) fire("history");
    greeted = true;
    readOutput();
  },
  request({ request }) {
    const isNew = request.status === "pending" && !waitingIds.has(request.id);
    if (request.status === "pending" && !waitingChanges.has(fileOf(request))) waitingIds.set(request.id, fileOf(request));
    else waitingIds.delete(request.id);
    count();
    if (isNew) say(`A ${request.category} request waits`);
    for (const id of [request.id, `changes:${request.session_id}`]) cardChanged(id);
    soon("inbox");
    if ($("done").dataset.session === request.session_id) soon("told");
    if (request.origin === "workspace") soon("changes");
    if (isShown(request.session_id)) soon("requests");
    soon("history");
  },
  changes(event) {
    if (event.waiting) {
      waitingChanges.set(event.session_id, event.waiting);
      for (const [id, session] of waitingIds) if (session === event.session_id) waitingIds.delete(id); // they are counted in it
    }
    else waitingChanges.delete(event.session_id);
    count();
    cardChanged(`changes:${event.session_id}`);
    if ($("done").dataset.session === event.session_id) soon("told");
    soon("inbox");
    soon("changes");
    soon("history");
    if (isShown(event.session_id)) soon("requests");
  },
  session({ session }) {
    // What its cards say of the time to answer is another from its end on.
    if (session.state === "ended" && !ended.has(session.id)) {
      ended.add(session.id);
      const pane = $("pane");
      if (pane?.dataset.session === session.id) cardChanged(pane.dataset.request);
      soon("inbox");
    }
    soon("session"); soon("spend", SPEND_PAUSE_MS); soon("history"); readOutput(); },
  rules() { soon("rules"); soon("history"); },
  network(event) {
    if (document.querySelector("[data-network]")?.dataset.network === event.session_id) soon("network", networkPauseMs);
  },
  quiet() { soon("quiet", NETWORK_PAUSE_MS); },
  banner() { fire("banner"); },
  output(event) {
    if (sessionHere() !== event.session_id) return;
    readOutput();
    soon("screen", screenPauseMs);
    soon("printed", PRINTED_PAUSE_MS);
  },
  printed(event) { if ($("pane")?.dataset.request === event.request_id) soon("printing"); },
  shutdown(event) { farewell = event.why || "Gatehouse is shutting down"; say(farewell); },
};

function lost() {
  show("off", "not connected");
  if (!lostTimer) lostTimer = setTimeout(tellLost, PATIENCE_MS);
  retryTimer = setTimeout(reconnect, retryMs);
  retryMs = Math.min(retryMs * 2, LAST_RETRY_MS);
}

// Whoever was signed out isn't let in by trying again: each try would count as a wrong credential.
async function reconnect() {
  try {
    if (isSignedOut((await look()).status)) return;
  } catch { /* not there yet */ }
  connect();
}

// One question at a time: each that is refused counts.
let looking = null;
const look = () => (looking ??= get("/api/status").finally(() => { looking = null; }));

function isSignedOut(status) {
  if (status !== 401 && status !== 429) return false;
  clearTimeout(retryTimer);
  clearTimeout(lostTimer);
  $("lost").textContent = "You are signed out: Gatehouse was started anew, or 12 hours have passed. Open the new link that it printed, or run `gatehouse url`.";
  $("lost").hidden = false;
  for (const button of document.querySelectorAll("button")) button.disabled = true;
  return true;
}

async function tellLost() {
  const box = $("lost");
  box.textContent = `${farewell || "The connection to Gatehouse is lost"}. What you see here may be old; trying again.`;
  box.hidden = false;
  try {
    if (isSignedOut((await look()).status)) return;
  } catch { /* not there: as said */ }
  if (lostTimer) lostTimer = setTimeout(tellLost, LAST_RETRY_MS);
}

function show(state, text) {
  $("live").dataset.state = state;
  $("live-text").textContent = text;
}

// The list of what went over the network was shown anew, which took so long.
export function networkShown(tookMs) {
  networkPauseMs = Math.min(Math.max(NETWORK_PAUSE_MS, PAUSE_TIMES * tookMs), LONGEST_PAUSE_MS);
}

// The same of the agent's screen, from asked for to shown.
export function screenShown(tookMs) {
  screenPauseMs = Math.min(Math.max(SCREEN_PAUSE_MS, PAUSE_TIMES * tookMs), LONGEST_PAUSE_MS);
}

// The session whose page this is; a page of all sessions has none.
const sessionHere = () => $("session-head")?.dataset.session;
const isShown = (session) => [undefined, session].includes(sessionHere());

export function fire(name) {
  if (name === "history" && $("newer")) $("newer").hidden = false;
  document.body.dispatchEvent(new CustomEvent(`gatehouse:${name}`));
}

// A burst of events is one reading of what they are about.
const waiting = new Set();
export function soon(name, pauseMs = 150) {
  if (waiting.has(name)) return;
  waiting.add(name);
  setTimeout(() => { waiting.delete(name); fire(name); }, pauseMs);
}

for (const name of ["online", "visibilitychange"]) {
  (name === "online" ? window : document).addEventListener(name, () => {
    if (socket && socket.readyState === WebSocket.CLOSED && !document.hidden) reconnect();
  });
}
