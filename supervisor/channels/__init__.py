"""Does what an agent asked for: commands, saved rules. Each acts on a grant only.

Channels never import each other. Start with `exec`.
"""
