"""Prices as data: what the clouds charge for machines, how they bill, and how their history is kept.

    model      units, markets, billing rules, bills, spells of capacity
    formats    recorded files and tables of rows: how each is read, and which rows are believed
    catalogue  instance types and on-demand list prices, as published
    snapshots  the generated market that ships with the program
    store      every row ever fetched or imported, in Parquet, with where it came from
    feeds      the clouds' own APIs

Imports none of the other packages, and no cloud SDK until a feed is asked.
"""
