"""Decides which machine does what in a training job, through joins, warnings and losses.

Pure but for ``process.py``. Read ``stages.py``, ``cluster.py`` and ``invariants.py``, then
``state_machine.py``: one function takes the cluster and its events, and returns the cluster and its commands.
``placement`` decides who holds partitions and shards. ``recovery.py`` decides what a loss costs, ``links.py``
talks to the other processes, and ``journal.py`` brings the controller back after a kill. Only ``process.py``
knows sockets; nothing here knows arrays or the application.
"""
