"""Trains models on spot capacity: job files in; machines, models and bills out.

job        the job file, read and resolved to a run's settings
control    the pure core: facts in, commands out
engines    what trains: AgileML or any program, real or modelled
providers  where machines come from
worlds     time, prices and a provider put together: a replay, or this computer
session    a run from its plan to its end
queue      many jobs at once
records    what is kept on disk
report     what a run cost, and compared with what
prices, backtest, charts   the price store, past prices, pictures
cli        the commands
"""
