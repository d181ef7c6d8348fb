"""Implements a parameter server's side of the protocol: partitions of the model, and their backups.

Read ``partition.py`` and ``undo_log.py`` (values, and how clocks change them), ``server.py`` (messages in,
messages out), then ``replica.py``, ``replicas.py``, ``replica_moves.py`` and ``peer_traffic.py`` (what goes
to backups and new owners). Pure but for ``process.py`` and ``checkpoint_writer.py``; knows neither machines
nor what a row means.
"""
