"""The pure half of the review service: which reviews are wanted, and what may be posted.

Start with `slots`: the facts about a pull request, and how each event changes them.
"""
