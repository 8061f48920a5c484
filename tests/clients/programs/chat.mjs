// Says hello over a WebSocket with undici's client and prints what comes back.
import { createRequire } from 'node:module';

const [url, undici] = process.argv.slice(2);
const { EnvHttpProxyAgent, WebSocket } = createRequire(import.meta.url)(undici);
const socket = new WebSocket(url, { dispatcher: new EnvHttpProxyAgent() });
socket.addEventListener('open', () => socket.send('hello'.repeat(100)));
socket.addEventListener('message', (event) => {
  console.log(event.data, socket.extensions);
  socket.close();
  process.exit(0);
});
socket.addEventListener('error', (event) => {
  console.log('error', String(event.message ?? event.error), String(event.error?.cause));
  process.exit(1);
});
