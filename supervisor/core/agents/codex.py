"""Codex's home in its sandbox. Source: https://developers.openai.com/codex/config-reference"""

import json

from supervisor.core.agents.inside import SERVER_URL, Inside

# Codex can't make a sandbox inside another. The hook is ours, and no person is there to confirm
# that it is trusted. These settings override a repository's own, which override those of the home:
# so no other server can take our server's name. If a repository defines it as a program, it has a
# URL too, and Codex doesn't start.
ARGUMENTS = (
    "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust",
    "-c",
    f"mcp_servers.gatehouse.url={json.dumps(SERVER_URL)}",
)
CONVERSATIONS = ".codex/sessions"
HOOK_S = 86_400
# The calls that it makes at its start, whatever its settings say.
DENIED = {
    "network(chatgpt.com)": "ChatGPT's plugins, apps and account; this session has a key instead",
    "network(* https://raw.githubusercontent.com/openai/codex/main/announcement_tip.toml)": (
        "announcements of Codex's makers"
    ),
}

LEFT_OUT = {
    ".codex/AGENTS.md": "your instructions for all projects",
    ".codex/config.toml": "your settings, profiles and MCP servers",
    ".codex/prompts": "your prompts",
    ".codex/skills": "your skills",
}


def home(inside: Inside) -> dict[str, str]:
    """Return the files of its home, by path. JSON strings serve as TOML strings."""
    text = json.dumps
    lines = [
        "check_for_update_on_startup = false",
        *([f"openai_base_url = {text(inside.urls['openai'])}"] if "openai" in inside.urls else []),
        "[analytics]",
        "enabled = false",
        "[feedback]",
        "enabled = false",
        # Their lists come from its makers' hosts.
        "[features]",
        "plugins = false",
        "apps = false",
        f"[projects.{text(inside.workspace)}]",
        'trust_level = "trusted"',
        "[mcp_servers.gatehouse]",
        f"url = {text(SERVER_URL)}",
        'bearer_token_env_var = "GATEHOUSE_TOKEN"',
        "[[hooks.PreToolUse]]",
        "[[hooks.PreToolUse.hooks]]",
        'type = "command"',
        f"command = {text(inside.hook)}",
        f"timeout = {HOOK_S}",
        f"statusMessage = {text(inside.asking)}",
    ]
    return {".codex/config.toml": "\n".join(lines) + "\n"}
