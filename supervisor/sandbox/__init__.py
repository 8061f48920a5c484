"""Sandboxes for agents: a protocol, and bubblewrap, the embedded default.

A backend either provides a sandbox as strong as requested, or raises SandboxError and leaves
nothing behind. It decides nothing about actions, and never imports the gate. Start with `base`,
then `bubblewrap`.
"""
