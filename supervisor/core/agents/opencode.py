"""OpenCode's home in its sandbox. Source: https://opencode.ai/docs/config"""

import json

from supervisor.core.agents.inside import SERVER_URL, Inside

# Its list of models and its updates come from its makers' hosts; our plugins need no packages.
ENVIRONMENT = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    # These settings override a repository's own, which override those of the home: so no other
    # server can take our server's name.
    "OPENCODE_CONFIG_CONTENT": json.dumps(
        {"mcp": {"gatehouse": {"type": "remote", "url": SERVER_URL, "enabled": True}}}
    ),
}

LEFT_OUT = {
    ".config/opencode/AGENTS.md": "your instructions for all projects",
    ".config/opencode/opencode.json": "your settings and MCP servers",
    ".config/opencode/agent": "your agents",
    ".config/opencode/command": "your commands",
    ".config/opencode/plugin": "your plugins",
}

# Its database has nothing else beside it there: neither a login nor a log.
CONVERSATIONS = ".data/opencode"
KEEPING = {"OPENCODE_DB": f"/home/agent/{CONVERSATIONS}/opencode.db"}


def home(inside: Inside) -> dict[str, str]:
    """Return the files of its home, by path. Its own questions are off: the hook asks Gatehouse
    instead."""
    bases = {
        "anthropic": f"{inside.urls['anthropic']}/v1" if "anthropic" in inside.urls else "",
        "openai": inside.urls.get("openai", ""),
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "provider": {name: {"options": {"baseURL": base}} for name, base in bases.items() if base},
        "mcp": {
            "gatehouse": {
                "type": "remote",
                "url": SERVER_URL,
                "headers": {"Authorization": "Bearer {env:GATEHOUSE_TOKEN}"},
                "oauth": False,
            }
        },
    }
    # This makes OpenCode believe that the packages for plugins are installed, in both folders that
    # it reads settings from; our plugin needs none.
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    has_all = {"node_modules/.keep": "", "package-lock.json": json.dumps(lock)}
    return {
        **{f".config/opencode/{name}": text for name, text in has_all.items()},
        **{f".opencode/{name}": text for name, text in has_all.items()},
        ".config/opencode/opencode.json": json.dumps(config, indent=1),
        ".config/opencode/plugins/gatehouse.js": inside.plugin,
    }
