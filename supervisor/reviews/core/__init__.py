"""The pure half of the review service: what is wanted, what may be posted, and what it says.

Start with `slots`: what a pull request wants and has, and what each event makes of it.
"""
