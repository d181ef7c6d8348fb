"""Says when a clock is complete, and which clock a worker may compute next.

Read ``base.py``, the questions that servers, workers and the controller ask, then ``bounded_staleness.py``,
which answers them for BSP and SSP. Pure values that know clocks and shards; they know no machine, row,
message or time.
"""
