"""Decides where partitions and input shards live.

``layout.py`` divides fairly with few moves, ``load_model.py`` derives the cost of a clock, and
``ownership.py`` records who holds what. ``partition_moves.py``, ``backup_placement.py`` and
``shard_assignment.py`` make the moves. All of it is pure.
"""
