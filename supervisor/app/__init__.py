"""Composition root: build all parts from settings, start and stop them in order.

Only the CLI imports it. Start with `app`; `session_parts` holds the parts around one session.
"""
