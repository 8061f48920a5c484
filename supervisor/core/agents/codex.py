"""Codex's home in its sandbox. Source: https://developers.openai.com/codex/config-reference"""

import json

from supervisor.core.agents.inside import SERVER_URL, Inside

# It can't make a sandbox inside of one. The hook is ours: there is nobody who could trust it.
# A repository's own settings go before those of the home, and after these: no other server is
# called by the name of ours. Codex doesn't start where one is a program: it has a URL, too, then.
ARGUMENTS = (
    "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust",
    "-c",
    f"mcp_servers.gatehouse.url={json.dumps(SERVER_URL)}",
)
HOOK_S = 86_400
# What it calls at its start, whatever its settings say.
DENIED = {
    "network(chatgpt.com)": "ChatGPT's plugins, apps and account; this session has a key instead",
    "network(* https://raw.githubusercontent.com/openai/codex/main/announcement_tip.toml)": (
        "announcements of Codex's makers"
    ),
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
    ]
    return {".codex/config.toml": "\n".join(lines) + "\n"}
