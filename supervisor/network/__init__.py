"""The supervisor's half of egress: starts its process, answers its questions, keeps its log.

Never dials an origin itself. Start with `network`, then `egress_questions`.
"""
