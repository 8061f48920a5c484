"""Agent side of the sandbox. It imports nothing of `supervisor`, nor does `supervisor` import
it."""
