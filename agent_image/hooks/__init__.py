"""Hooks of agents: before a tool runs, Gatehouse is asked whether it may.

`gate` asks, and is the same for all agents. Each protocol has an adapter, which only translates:
`pre_tool_use` for Claude Code and Codex, `opencode.js` for OpenCode.
"""
