"""Pages and JSON API of the review service, its additions to a card, and its metrics.

Start with `reviews_page` and `reviews_api`; both show what `review_views` reads.
"""
