"""The supervisor's half of egress: starts its process, answers its questions, keeps its log.

It never dials an origin itself. Start with `network`, then `egress_questions`.
"""
