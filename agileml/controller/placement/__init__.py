"""Decides where partitions and input shards live.

``layout.py`` divides fairly with few moves, ``load_model.py`` says what a server costs, ``ownership.py`` who
holds what; ``partition_moves.py``, ``backup_placement.py`` and ``shard_assignment.py`` make the moves. Pure.
"""
