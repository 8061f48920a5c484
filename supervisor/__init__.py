"""Gatehouse: runs an AI agent on a real code base in a sandbox, and lets nothing out unasked."""

__version__ = "0.1.0"
