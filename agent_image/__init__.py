"""What is put into the agent's sandbox. Imports nothing of `supervisor`, and the reverse."""
