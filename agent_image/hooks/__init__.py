"""Hooks of agents that have any: before a tool runs, Gatehouse is asked whether it may.

`gate` asks, and is the same for all. Beside it is an adapter for each protocol, which only
translates: `pre_tool_use` for Claude Code and Codex, `opencode.js` for OpenCode.
"""
