"""Claude Code's home in its sandbox. Source: https://docs.claude.com/en/docs/claude-code/settings"""

import json

from supervisor.core.agents.inside import SERVER_URL, Inside

ENVIRONMENT = {
    # All that it keeps is in one folder, its state too.
    "CLAUDE_CONFIG_DIR": "/home/agent/.claude",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The list of plugins comes from its makers' hosts, and from GitHub.
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
}
# It names a project's folder by where it works. Beside conversations it keeps there what each later
# session reads unasked.
CONVERSATIONS = (".claude/projects/-workspace-merged", ("memory",))
# These settings override a repository's own, which override those of the home.
ARGUMENTS = ("--settings", '{"disableAllHooks": false}')
LEFT_OUT = {
    ".claude/CLAUDE.md": "your instructions for all projects",
    ".claude/settings.json": "your settings and hooks",
    ".claude.json": "your MCP servers",
    ".claude/agents": "your subagents",
    ".claude/commands": "your commands",
    ".claude/skills": "your skills",
    ".claude/plugins": "your plugins",
}
# Longer than any request is held; the hook has a limit of its own. A call that takes longer than
# this runs unasked.
HOOK_S = 86_400
# Claude Code remembers an approved key by this many of its last characters.
KEY_CHARS = 20


def home(inside: Inside) -> dict[str, str]:
    """Return the files of its home, by path. Its own questions are off: the hook asks Gatehouse
    instead, and the sandbox confines it."""
    settings = {
        "hooks": {
            "PreToolUse": [
                {
                    "matcher": "*",
                    "hooks": [
                        {
                            "type": "command",
                            "command": inside.hook,
                            "timeout": HOOK_S,
                            "statusMessage": inside.asking,
                        }
                    ],
                }
            ]
        },
        "permissions": {"defaultMode": "bypassPermissions"},
        "skipDangerousModePermissionPrompt": True,
        # Otherwise it asks Anthropic about each host; egress judges hosts anyway.
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
                # Servers in this scope override those with the same name in a repository's
                # `.mcp.json`.
                "mcpServers": {"gatehouse": server},
            },
        },
    }
    return {
        ".claude/settings.json": json.dumps(settings, indent=1),
        ".claude/.claude.json": json.dumps(state, indent=1),
    }
