// Gets a URL with Node's own fetch: prints the body, ends with 0 where the status is 200.
// A Node that doesn't read HTTPS_PROXY by itself (before 24) is told where the proxy is, by the undici that npm brings.
import { createRequire } from 'node:module';

const [url, undici] = process.argv.slice(2);
let get = fetch;
if (undici) {
  const { EnvHttpProxyAgent, fetch: theirs, setGlobalDispatcher } = createRequire(import.meta.url)(undici);
  setGlobalDispatcher(new EnvHttpProxyAgent());
  get = theirs;
}
try {
  const answer = await get(url);
  console.log(answer.status, await answer.text());
  process.exitCode = answer.ok ? 0 : 1;
} catch (error) {
  console.log(String(error), String(error.cause));
  process.exitCode = 1;
}
