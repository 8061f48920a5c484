// Hook `tool.execute.before` of OpenCode: its call of a tool, as Gatehouse is asked; a plugin that
// throws blocks the tool, and the model reads why. Source: https://opencode.ai/docs/plugins
//
// INVARIANT: only an answer that says yes lets a tool run.

const EDITS = ["edit", "write", "multiedit", "patch", "apply_patch"]
// Tools that only read or plan.
const ASK_NOTHING = /^(?:read|glob|grep|list|ls|lsp|task|todo\w*|skill|question|plan\w*|invalid)$/
const PATCHED = /^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$/gm

function questions(tool, args, cwd) {
  if (process.env.GATEHOUSE_QUARANTINE) {
    const isReading = ["read", "grep", "glob"].includes(tool) // of the others nobody needs to know more
    return [{ tool: "named", name: tool, arguments: isReading ? (args ?? {}) : {} }]
  }
  if (tool === "bash") {
    const folder = args.workdir ?? cwd
    return [{ tool: "command", command: args.command, cwd: folder, reason: (args.description ?? "").slice(0, 2000) }]
  }
  if (tool === "webfetch") return [{ tool: "fetch", url: args.url }]
  if (EDITS.includes(tool)) {
    const patched = [...(args.patchText ?? "").matchAll(PATCHED)].map((found) => found[1].trim())
    const paths = args.filePath ? [args.filePath] : patched
    if (!paths.length) throw new Error(`it isn't known which file ${tool} changes`)
    return paths.map((path) => ({ tool: "edit", path, cwd }))
  }
  if (ASK_NOTHING.test(tool)) return []
  // SERVER_TOOL; a server's name may have an underscore, too.
  const [server, ...name] = tool.split("_")
  return [{ tool: "mcp", server, name: name.join("_"), arguments: JSON.stringify(args) }]
}

async function ask(question) {
  const answer = await fetch(`${process.env.GATEHOUSE_URL}/v1/tool-calls`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.GATEHOUSE_TOKEN}`, "Content-Type": "application/json" },
    body: JSON.stringify(question),
    timeout: false, // a person may be asked meanwhile: Gatehouse says when it is held no longer
  })
  const found = await answer.json()
  if (answer.status !== 200) throw new Error(`${found.error}; ${found.remedy || "nothing was asked"}`)
  if (found.allowed !== true) throw new Error(found.why)
}

// What the screen says where the answer isn't there at once.
const MOMENT_MS = 2000

function saying(client) {
  const message = `waits for an answer: ${process.env.GATEHOUSE_PAGE} or \`gatehouse approve\``
  const body = { title: "Gatehouse", message, variant: "warning" }
  return setTimeout(() => client?.tui?.showToast({ body }).catch(() => {}), MOMENT_MS)
}

export const Gatehouse = async ({ client, directory }) => ({
  "tool.execute.before": async (input, output) => {
    const shown = saying(client)
    try {
      for (const question of questions(input.tool, output.args, directory)) {
        await ask(question)
      }
    } catch (error) {
      throw new Error(`Gatehouse: ${error.message}`)
    } finally {
      clearTimeout(shown)
    }
  },
})
