"""What both doors share: who may come in, the error body, listening, templates.

Start with `request_guard`.
"""
