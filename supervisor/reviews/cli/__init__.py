"""The verbs of the review service. Each calls the running supervisor, and prints.

Start with `review_verbs`.
"""
