// Countdowns and times. The server's clock counts: a page may be open on another machine, whose clock is off.
const offset = Number(document.body.dataset.now) - Date.now() / 1000;

export function now() {
  return Date.now() / 1000 + offset;
}

function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds)), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  const two = (n) => String(n).padStart(2, "0");
  return h ? `${h}h ${two(m)}m` : m ? `${m}m ${two(s % 60)}s` : `${s}s`;
}

function ago(seconds) {
  const minutes = Math.floor(Math.max(0, seconds) / 60), hours = Math.floor(minutes / 60);
  if (minutes < 1) return "now";
  return hours >= 48 ? `${Math.floor(hours / 24)} days` : hours ? `${hours} h` : `${minutes} min`;
}

function write(item, text) {
  if (item.textContent !== text) item.textContent = text;
}

export function tick() {
  const at = now();
  for (const item of document.querySelectorAll("[data-until]")) {
    const left = Number(item.dataset.until) - at;
    const over = left <= 0 && item.dataset.over;
    if (over && item.textContent !== over) document.body.dispatchEvent(new CustomEvent("gatehouse:over"));
    write(item, over || `${item.dataset.prefix || ""}${duration(left)}${item.dataset.suffix || ""}`);
    item.classList.toggle("urgent", !over && left < Number(item.dataset.urgent || 0));
  }
  for (const item of document.querySelectorAll("[data-since]")) write(item, duration(at - Number(item.dataset.since)));
  for (const item of document.querySelectorAll("[data-ago]")) write(item, ago(at - Number(item.dataset.ago)));
  for (const item of document.querySelectorAll("time[data-at]:not([datetime])")) {
    const when = new Date(Number(item.dataset.at) * 1000);
    item.dateTime = when.toISOString();
    item.title = when.toLocaleString();
    const isToday = when.toDateString() === new Date(at * 1000).toDateString();
    const isShort = item.hasAttribute("data-short");
    const time = when.toLocaleTimeString([], isShort ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : {});
    write(item, isToday ? time : isShort ? when.toLocaleDateString([], { day: "numeric", month: "short" }) : when.toLocaleString());
  }
}

export function watchTime() {
  setInterval(tick, 1000);
  tick();
  document.addEventListener("htmx:afterSettle", tick);
}
