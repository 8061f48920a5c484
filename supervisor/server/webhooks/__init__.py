"""The door for forges: one route, on a listener of its own. Nothing else of Gatehouse is behind it.

Start with `webhook_app`.
"""
