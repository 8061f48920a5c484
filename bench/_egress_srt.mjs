// sandbox-runtime's proxy as its manager starts it (startMuxProxyServer in dist/sandbox/sandbox-manager.js), letting everything through:
// one port that takes HTTP and SOCKS, and behind it the HTTP proxy on a socket of its own.
//   node _egress_srt.mjs PACKAGE PORT LEAVE|TERMINATE
// Prints the certificate that clients are to trust (empty where TLS is passed on) once it listens.
const [folder, port, mode] = process.argv.slice(2);
const { createHttpProxyServer } = await import(`${folder}/dist/sandbox/http-proxy.js`);
const { createMitmCA } = await import(`${folder}/dist/sandbox/mitm-ca.js`);
const { createMuxProxyServer } = await import(`${folder}/dist/sandbox/mux-proxy.js`);
const mitmCA = mode === "TERMINATE" ? createMitmCA({}) : undefined;
const httpServer = createHttpProxyServer({
  filter: () => true,
  filterRequest: mitmCA && (() => ({ action: "allow" })),
  mitmCA,
});
const front = createMuxProxyServer({ httpServer, handleSocksConnection: (socket) => socket.destroy() });
await front.listenHttpBackend();
front.server.listen(Number(port), "127.0.0.1", () => console.log(mitmCA?.certPath ?? ""));
