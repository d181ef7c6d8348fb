"""The decisions: what to buy, keep and let go, for one job and for many. Pure: no clock, no file, no chance.

    model, batch       what a decision sees: one running job, or n decision points as arrays
    work, cost, weigh  Harlap's equations 4.1 to 4.4; ``docs/glossary.md`` maps their symbols
    requests, decide   which request makes work cheapest; the same in words
    eviction/          how likely a machine is lost, and by when
    strategies/        who buys; live and backtested are the same object
    deadline/          when to buy, so that a deadline is kept for least
    backtest/          many starts over one history, and the clairvoyant optimum
    policies/          who among many jobs gets which machines (Gavel)
    rounds, clustersim shares made into rounds, over a trace of jobs

Imports ``pricing_data`` and nothing else of ours.
"""
