"""The elasticity controller: which machine does what, through joins, warnings and losses.

Pure but for ``process.py``. Read ``stages.py`` and ``cluster.py``, then ``state_machine.py`` (one function:
cluster and event in, cluster and commands out). ``placement`` decides who holds partitions and shards,
``recovery.py`` what a loss costs, ``links.py`` whom the controller talks to, ``journal.py`` how its process
comes back after a kill. Knows no sockets (``process.py`` alone does), no arrays and no application.
"""
