"""Shared by both servers: authentication, the error body, listening, templates.

Start with `request_guard`.
"""
