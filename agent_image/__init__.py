"""Agent side of the sandbox. Imports nothing of `supervisor`, and the reverse."""
