"""Where agents run: a Protocol with two backends, bubblewrap (the embedded default) and compose.

A backend either gives a sandbox as strong as asked or raises SandboxError with nothing left behind. It decides
nothing about actions, and never imports the gate.
"""
