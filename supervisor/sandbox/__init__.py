"""Sandboxes for agents: a protocol, and bubblewrap, the embedded default.

A backend either gives a sandbox as strong as asked or raises SandboxError with nothing left
behind. It decides nothing about actions, and never imports the gate. Start with `base`, then
`bubblewrap`.
"""
