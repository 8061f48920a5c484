// sandbox-runtime's proxy by itself, as its manager starts it, letting everything through.
//   node _egress_srt.mjs PACKAGE PORT LEAVE|TERMINATE
// Prints the certificate that clients are to trust (empty where TLS is passed on) once it listens.
const [folder, port, mode] = process.argv.slice(2);
const { createHttpProxyServer } = await import(`${folder}/dist/sandbox/http-proxy.js`);
const { createMitmCA } = await import(`${folder}/dist/sandbox/mitm-ca.js`);
const mitmCA = mode === "TERMINATE" ? createMitmCA({}) : undefined;
const server = createHttpProxyServer({
  filter: () => true,
  filterRequest: mitmCA && (() => ({ action: "allow" })),
  mitmCA,
});
server.listen(Number(port), "127.0.0.1", () => console.log(mitmCA?.certPath ?? ""));
