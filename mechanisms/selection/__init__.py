"""Selection of the best of several items by noisy scores: what is private, and what only seems so.

Scores are the larger the better. Neighbours change each score by at most the sensitivity; with
``monotone`` all in the same direction, as where one person adds to counts.
"""
