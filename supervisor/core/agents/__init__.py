"""Agents that can be started by name, and what each needs in its sandbox. Pure.

Start with `agents`; the files that each agent reads from its home are in `claude`, `codex` and
`opencode`.
"""
