"""Systems of published papers, reproduced, one module a paper: for comparison and audits only.

Nothing that ships in an app or runs on a cluster imports this package. A module that reproduces a
claim which does not hold exports it by a function ``claims``; ``sotto audit`` attacks all of them.
"""
