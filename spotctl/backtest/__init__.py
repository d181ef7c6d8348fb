"""Backtests a user's job over recorded prices: the shell around ``bidbrain.backtest``.

``sources.py`` finds prices, ``prepare.py`` makes a backtest of a job file, ``result.py`` runs it (jobs with a
deadline in ``with_deadline.py``), ``chart.py`` draws it.
"""
