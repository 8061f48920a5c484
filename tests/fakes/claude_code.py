"""How the real Claude Code CLI is run against the local Messages server, and the script that it
plays.

Separate from the tests, because the same command line and environment run it outside the sandbox
(here) and inside (tests/scenarios). The CLI is the one that claude-agent-sdk bundles; nothing is
downloaded.
"""

import importlib.util
from pathlib import Path

from tests.fakes.messages_server import Json, Step, Turn, calls, text, tool_use

FINAL_WORDS = "Both are done: the file is written and the command ran."


def claude_binary() -> Path | None:
    """The bundled CLI, or None where claude-agent-sdk isn't installed for this platform."""
    found = importlib.util.find_spec("claude_agent_sdk")
    if found is None or found.origin is None:
        return None
    binary = Path(found.origin).parent / "_bundled" / "claude"
    return binary if binary.is_file() else None


def claude_command(binary: str, prompt: str = "Please make the change.") -> tuple[str, ...]:
    """The argument list for one run without a terminal; it ends with a JSON object on standard
    output.

    Permissions are the sandbox's business, so the CLI's own prompts are off; as root it accepts
    that only with `IS_SANDBOX=1`. No session is kept, and no settings of the workspace are read
    but what `-p` always reads.
    """
    return (
        binary,
        "-p",
        prompt,
        "--output-format",
        "json",
        "--dangerously-skip-permissions",
        "--no-session-persistence",
    )


def claude_environment(
    base_url: str, home: str = "/home/agent", api_key: str = "placeholder"
) -> dict[str, str]:
    """What the CLI needs besides PATH (and, in the sandbox, the proxy and CA variables that
    every agent gets)."""
    return {
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": api_key,
        "ANTHROPIC_MODEL": "claude-sonnet-5-5",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": f"{home}/.claude",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "HOME": home,
        "IS_SANDBOX": "1",
    }


def claude_script(edit_path: str, new_text: str, command: str) -> list[Step]:
    """Turns for `MessagesServer(script, follow="conversation")`: write `edit_path`, run `command`,
    end.

    `edit_path` is absolute, as the CLI's tools want it. A file that exists has to be read before
    it is written, so the script reads it first; where it doesn't exist that call fails, which
    the script doesn't mind.
    """

    def write(_body: Json) -> Turn:
        return calls(tool_use("Write", {"file_path": edit_path, "content": new_text}))

    return [
        calls(tool_use("Read", {"file_path": edit_path}), words="I read the file first."),
        write,
        calls(
            tool_use("Bash", {"command": command, "description": "Run the command of the script"})
        ),
        text(FINAL_WORDS),
    ]
