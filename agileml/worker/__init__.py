"""Implements a worker's side of the protocol: reads rows, runs the application on its shards, sends what
changed.

Read ``worker.py`` with ``task.py``, ``deliveries.py`` and ``requests.py``; ``read_plan.py`` says which rows a
shard needs, ``shard_cache.py`` and ``shard_loader.py`` keep input within memory. Pure but for ``process.py``
and the loader. It knows no server's role, no other worker and no socket.
"""
