// What waits, for a person who looks elsewhere: a number in the tab's icon, and a browser notification, which the person asked for by the
// button in the bar. What was waiting when the page opened isn't told; what is answered elsewhere takes its notification away.
import { $, quietly } from "./say.js";

const MOST_LETTERS = 160;
// What comes in one burst is one notification.
const BURST_MS = 800;
const MOST_IN_ICON = 9;
// The button of one browser counts for all its pages.
const WANTED = "gatehouse.notify";
const isWanted = () => localStorage.getItem(WANTED) === "yes" && window.Notification?.permission === "granted";

// What waits: requests, and the sets of changed files that are one card, each by the path of its card.
const known = new Set();
let isOpened = false; // what waits was told once
let fresh = new Map(); // path -> its line, of what nobody was told yet
let shown = null; // the notification, and the paths it is about
let timer = 0;

const pathOf = (id) => `/requests/${encodeURIComponent(id)}`;
const pathOfSet = (session) => `/#changes-${encodeURIComponent(session)}`;

// Hears each event of the WebSocket.
export function notify(event) {
  if (event.type === "request") hear(pathOf(event.request.id), event.request.status === "pending", event.request.title);
  else if (event.type === "changes") hear(pathOfSet(event.session_id), event.waiting > 0, `${event.waiting} changed files`);
  else if (event.type === "hello") {
    const titles = new Map(event.requests.map((request) => [request.id, request.title]));
    const waiting = new Map(event.pending_ids.map((id) => [pathOf(id), titles.get(id) ?? ""]));
    for (const set of event.changes) waiting.set(pathOfSet(set.session_id), `${set.waiting} changed files`);
    for (const path of [...known]) if (!waiting.has(path)) hear(path, false, "");
    for (const [path, line] of waiting) hear(path, true, line);
    isOpened = true;
  }
}

function hear(path, waits, line) {
  if (!waits) forget(path);
  else if (!known.has(path)) {
    known.add(path);
    if (!isOpened || !isWanted() || document.hasFocus()) return;
    fresh.set(path, line);
    timer ||= setTimeout(show, BURST_MS);
  }
}

function forget(path) {
  known.delete(path);
  fresh.delete(path);
  if (shown?.paths.delete(path) && !shown.paths.size) shown.box.close();
}

function show() {
  timer = 0;
  if (!fresh.size) return;
  const paths = new Set(fresh.keys());
  const [[path, line]] = fresh;
  fresh = new Map();
  const many = paths.size > 1;
  const text = line.split("\n")[0];
  const body = many ? `${paths.size} requests wait for you` : text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS)}…` : text;
  try {
    // One at a time, whatever tab it is of: the newer takes the place of the older.
    const box = new Notification("Gatehouse asks", { body, tag: "gatehouse", renotify: true, icon: "/static/gatehouse.svg" });
    box.onclick = () => {
      window.focus();
      location.assign(many ? "/" : path);
      box.close();
    };
    shown = { box, paths };
  } catch { /* a telephone's browser: it has notifications for installed apps alone */
    localStorage.removeItem(WANTED);
    showButton();
  }
}

function showButton() {
  const button = $("notify");
  if (!button || !window.Notification || !window.isSecureContext) return;
  button.hidden = false;
  button.setAttribute("aria-pressed", String(isWanted()));
  button.title = isWanted() ? "Notifications are on in this browser" : "Have this browser tell you when something waits";
}

async function toggle() {
  if (isWanted()) {
    localStorage.removeItem(WANTED);
    quietly("This browser no longer tells you what waits.");
  } else if ((await Notification.requestPermission()) === "granted") {
    localStorage.setItem(WANTED, "yes");
    quietly("This browser tells you when something waits while a page of Gatehouse is open.");
  } else quietly("Your browser doesn't let this page notify you: its settings for this address say so.");
  showButton();
}

function showNumber() {
  const number = Number($("pending-count").textContent) || 0;
  const name = number > MOST_IN_ICON ? "waiting-more" : `waiting-${number}`;
  const link = document.querySelector('link[rel="icon"]');
  const href = number ? `/static/icons/${name}.svg` : "/static/gatehouse.svg";
  if (link.getAttribute("href") !== href) link.setAttribute("href", href);
}

export function watchNotifications() {
  new MutationObserver(showNumber).observe($("pending-count"), { childList: true, characterData: true, subtree: true });
  showNumber();
  showButton();
  $("notify")?.addEventListener("click", toggle);
  window.addEventListener("storage", showButton);
  // Whoever looks at the page needs to be told no more.
  window.addEventListener("focus", () => { fresh.clear(); shown?.box.close(); shown = null; });
}
