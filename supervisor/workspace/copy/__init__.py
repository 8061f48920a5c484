"""Makes the agent's private copy: files copied, or an overlay over the host's folder.

Start with `private_copy`.
"""
