"""Hook `PreToolUse` of Claude Code and Codex: translate a tool call to Gatehouse's question.

A call comes as JSON on standard input. Exit code 2 blocks the tool, and the model reads standard
error; a yes is exit code 0 with JSON that skips the agent's own prompt. Sources:
https://docs.claude.com/en/docs/claude-code/hooks, https://developers.openai.com/codex/hooks.

INVARIANT: any error is exit code 2: after every other code these agents run the tool.
"""

import json
import os
import re
import sys

# Claude Code's tools that change a file named in their arguments.
EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
# Files named in the text of Codex's `apply_patch`.
PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


def questions(call):
    """Return the questions to Gatehouse about a call; none if the tool only reads or plans."""
    name, given = call["tool_name"], call.get("tool_input") or {}
    if os.environ.get("GATEHOUSE_QUARANTINE"):
        # For other tools the arguments aren't needed.
        known = dict(given) if name in ("Read", "Grep", "Glob") else {}
        if "file_path" in known:
            known["file_path"] = as_reference(known["file_path"])
        return [{"tool": "named", "name": name, "arguments": known}]
    cwd = call.get("cwd") or "."
    if name.startswith("mcp__"):
        _, server, tool = name.split("__", 2)
        return [{"tool": "mcp", "server": server, "name": tool, "arguments": json.dumps(given)}]
    if name in EDITS:
        path = given.get("file_path") or given["notebook_path"]
        return [{"tool": "edit", "path": path, "cwd": cwd}]
    if name == "apply_patch":
        paths = PATCHED.findall(given["command"])
        return [{"tool": "edit", "path": path.strip(), "cwd": cwd} for path in paths]
    if name == "WebFetch":
        return [{"tool": "fetch", "url": given["url"]}]
    # `Bash`, and any other tool that runs a command.
    if command := given.get("command"):
        reason = str(given.get("description") or "")[:2000]
        return [{"tool": "command", "command": command, "cwd": cwd, "reason": reason}]
    return []


def as_reference(path):
    """Return the reference `/FOLDER/typed:/...` out of an absolute path that Claude Code has made
    of it."""
    _, found, rest = path.partition("typed:/")
    return f"typed://{rest.removeprefix('/')}" if found else path


def main():
    """Answer the agent, then exit."""
    sys.path.append(__file__.rpartition("/agent_image/")[0])
    from agent_image.hooks.gate import ask

    why, call = "", json.load(sys.stdin)
    for question in questions(call):
        allowed, why = ask(question)
        if not allowed:
            print(f"Gatehouse: {why}", file=sys.stderr)
            return 2
    # Codex, whose calls have a `turn_id`, rejects a yes that changes nothing.
    if why and "turn_id" not in call:
        said = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "permissionDecisionReason": why,
        }
        print(json.dumps({"hookSpecificOutput": said}))
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException as error:
        print(f"Gatehouse's hook failed ({error!r}), so this is denied", file=sys.stderr)
        code = 2
    sys.exit(code)
