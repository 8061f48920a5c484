"""Agents that are started by their name: what each needs in its sandbox. Pure.

Start with `agents`; what each agent reads from its home is in `claude`, `codex` and `opencode`.
"""
