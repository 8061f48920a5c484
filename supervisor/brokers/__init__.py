"""Channels that carry out what an agent may ask for. Each claims a grant and acts on it; none imports another."""
