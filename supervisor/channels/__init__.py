"""Channels carry out what an agent asked for. Each acts on a grant only.

Channels never import each other. Start with `exec`.
"""
