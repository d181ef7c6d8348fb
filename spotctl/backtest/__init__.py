"""Backtests of a user's job over recorded prices: the shell around ``bidbrain.backtest``."""
