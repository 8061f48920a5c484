"""Pages and JSON API of the review service, its additions to a card, and its metrics.

Start with `reviews_page`, which shows what `review_views` reads.
"""
