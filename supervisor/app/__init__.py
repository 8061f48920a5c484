"""The composition root: builds every part from settings, starts and stops them in order.

Nobody else but the CLI imports it. Start with `app`; `session_parts` stands around one session.
"""
