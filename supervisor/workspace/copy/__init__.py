"""Make the agent's private copy: files copied, or an overlay over the host's.

Start with `private_copy`.
"""
