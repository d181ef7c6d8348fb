"""Decides what to buy, keep and release, for one job and for many. Pure: no clock, file or randomness.

    model        what a decision sees and says
    eviction     how likely a machine is to be evicted, and how soon
    bidding      expected cost and work of a footprint, and the request that makes work cheapest (Proteus)
    strategies   who buys: the same object decides live and in a backtest
    deadline     when to buy so that a deadline is kept for least
    cluster      which of many jobs gets which machines (Gavel)
    performance  how fast jobs are, from what was measured
    relocation   what a move to another region or cloud costs
    backtest     many jobs over one price history, beside the clairvoyant optimum

Imports ``pricing_data`` alone. ``docs/glossary.md`` maps the papers' symbols to names.
"""
