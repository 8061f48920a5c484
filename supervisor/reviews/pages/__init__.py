"""Pages and JSON API of the review service, what it adds to a card, and its figures.

Start with `reviews_page` and `reviews_api`; both show what `review_views` reads.
"""
