"""What `make up` starts: turns the words that a user typed into one `gatehouse` command line.

It is separate from the Makefile because AGENT is a command *line*. Pasted into a recipe,
`AGENT='make && deploy'` would run its second half on the host, outside every sandbox. Here it is
split into words as a shell would split them, nothing is expanded or evaluated, and a line that
needs a shell is refused with the way to ask for one. It must never run anything but
`.venv/bin/gatehouse`.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

# Those that `gatehouse` starts by their name.
AGENTS = ("claude", "codex", "opencode")
GATEHOUSE = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "gatehouse"
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\||[;&|<>()`\n]|\$\(")


def agent_words(line: str) -> list[str]:
    """The words of a command line, quotes resolved. ValueError when it needs a shell or a quote
    isn't closed."""
    if operator := _OPERATOR.search(_QUOTED.sub("", line)):
        shown = operator.group().replace("\n", "\\n")
        raise ValueError(
            f"AGENT holds `{shown}`, which needs a shell; write it as AGENT='sh -c \"...\"'"
        )
    try:
        return shlex.split(line)
    except ValueError as error:
        raise ValueError(
            f"AGENT can't be split into words: {str(error).lower()}; close the quote"
        ) from error


def command(given: Mapping[str, str], *, is_terminal: bool) -> list[str]:
    """The arguments for `gatehouse`: the agent's name where it knows that, else `run` when there is
    an AGENT, else `review`; options only where given."""
    words = agent_words(given.get("GATEHOUSE_UP_AGENT", ""))
    workspace = os.path.expanduser(given.get("GATEHOUSE_UP_WORKSPACE") or ".")  # noqa: PTH111  (stays as it was typed)
    is_known = words[:1] != [] and words[0] in AGENTS
    verb = words.pop(0) if is_known else "run" if words else "review"
    arguments = [verb, "--workspace", workspace, "--open"]
    if port := given.get("GATEHOUSE_UP_PORT"):
        arguments += ["--port", port]
    if is_terminal:
        arguments.append("--stay")  # somebody is there, who will want to look at what came of it
    if words or is_known:
        arguments += ["--", *words]
    return arguments


def main() -> None:
    """Replaces this process by `gatehouse`, so that signals and the exit code are its own."""
    try:
        arguments = command(os.environ, is_terminal=sys.stdin.isatty())
    except ValueError as error:
        sys.exit(f"make up: {error}")
    if max_uptime := os.environ.get("GATEHOUSE_UP_MAX_UPTIME"):
        os.environ["MAX_UPTIME"] = max_uptime  # in all its forms: the option demands a unit
    os.execv(GATEHOUSE, [str(GATEHOUSE), *arguments])


if __name__ == "__main__":
    main()
