"""Chooses the request that makes work cheapest (BidBrain; Harlap 4.3).

Read ``expected_work.py`` and ``expected_cost.py`` (equations 4.1 to 4.4), then ``footprint.py``,
``candidate_search.py`` and ``decide.py``. ``billed_time.py`` applies billing rules to machines that may be
evicted, ``decision_batch.py`` holds many decision points as arrays, ``forecast.py`` estimates the cost of a
job, ``steady_state_cost.py`` and ``on_demand_cost.py`` price a whole job. Knows no strategy and no deadline.
"""
