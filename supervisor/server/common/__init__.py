"""Shared by both servers: authentication, the error body, listening.

Start with `request_guard`.
"""
