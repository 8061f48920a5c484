"""Shared by both servers: who may come in, the error body, listening, templates.

Start with `request_guard`.
"""
