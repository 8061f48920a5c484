"""Claude Code's home in its sandbox. Source: https://docs.claude.com/en/docs/claude-code/settings"""

import json

from supervisor.core.agents.inside import SERVER_URL, Inside

ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The list of plugins comes from its makers' hosts, and from GitHub.
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
}
# A repository's own settings go before those of the home, and after these.
ARGUMENTS = ("--settings", '{"disableAllHooks": false}')
# Longer than anything is held: the hook itself is told when. What takes longer runs unasked.
HOOK_S = 86_400
# By as much of its end Claude Code remembers that a key may be used.
KEY_CHARS = 20


def home(inside: Inside) -> dict[str, str]:
    """Return the files of its home, by path. Its own questions are off: the hook asks Gatehouse
    instead, and the sandbox confines it."""
    settings = {
        "hooks": {
            "PreToolUse": [
                {
                    "matcher": "*",
                    "hooks": [{"type": "command", "command": inside.hook, "timeout": HOOK_S}],
                }
            ]
        },
        "permissions": {"defaultMode": "bypassPermissions"},
        "skipDangerousModePermissionPrompt": True,
        # It would ask Anthropic about each host; egress judges it.
        "skipWebFetchPreflight": True,
    }
    key = inside.placeholders.get("ANTHROPIC_API_KEY", "")
    server = {
        "type": "http",
        "url": SERVER_URL,
        "headers": {"Authorization": "Bearer ${GATEHOUSE_TOKEN}"},
    }
    state = {
        "hasCompletedOnboarding": True,
        "bypassPermissionsModeAccepted": True,
        "customApiKeyResponses": {"approved": [key[-KEY_CHARS:]] if key else [], "rejected": []},
        "projects": {
            inside.workspace: {
                "hasTrustDialogAccepted": True,
                "allowedTools": [],
                # Servers of this scope win over one of the same name in a repository's `.mcp.json`.
                "mcpServers": {"gatehouse": server},
            },
        },
    }
    return {
        ".claude/settings.json": json.dumps(settings, indent=1),
        ".claude.json": json.dumps(state, indent=1),
    }
