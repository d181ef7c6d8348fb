"""Estimates evictions by price: a machine is lost when the price exceeds its bid (Harlap 4.3.1).

Read ``first_passage.py`` (the sums), ``price_crossing.py`` (the estimator), ``crossing_index.py`` (the same
for every moment of a replay) and ``beta_table.py`` (all bids at once). ``range_maximum.py`` finds the first
price above a level, ``confidence.py`` computes the interval of an estimate. Knows nothing of capacity.
"""
