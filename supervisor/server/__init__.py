"""The two doors: the operator's (pages, JSON API, live state) and the agent's. The only package that imports litestar.

They share no app, no socket, no credential and no route. What a door may do is what its handlers import: the agent's never
imports `decisions`, so no route of the agent's can lead to an answer.
"""
