// Runs `true` by sandbox-runtime's library once for each line on standard input, and prints its exit code: what a program does that keeps
// the library loaded. One host is allowed, so that the sandbox has its proxies, as ours has.
//   node _commands_srt.mjs PACKAGE FOLDER
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [folder, workspace] = process.argv.slice(2);
const { SandboxManager } = await import(`${folder}/dist/index.js`);
await SandboxManager.initialize({
  network: { allowedDomains: ["example.org"], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: [workspace], denyWrite: [] },
});
console.log("ready");
for await (const _ of createInterface({ input: process.stdin })) {
  const command = await SandboxManager.wrapWithSandbox("true");
  const child = spawn(command, { shell: true, cwd: workspace, stdio: "ignore" });
  console.log(await new Promise((done) => child.on("exit", done)));
}
await SandboxManager.reset();
process.exit(0);
