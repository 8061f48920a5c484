// What the page fetches by itself, within a bound: an answer that never ends (a connection that died half-way) would keep off the page
// whatever comes after it. What takes too long is asked for again; all else that fails is the caller's.
const PATIENCE_MS = 15000;

export async function get(path) {
  for (;;) {
    try {
      const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
      return { ok: answer.ok, status: answer.status, text: await answer.text() };
    } catch (error) {
      if (error.name !== "TimeoutError") throw error;
    }
  }
}
