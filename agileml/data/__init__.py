"""Reads training input, cuts it into shards, and keeps models and checkpoints.

Read ``tables.py`` (rows from any file) with ``duckdb_files.py`` and ``cell_values.py``, then ``sharding.py``
and ``shards.py``; ``file_survey.py``, ``column_names.py`` and ``sources.py`` find out what a file is.
``checkpoint_store.py`` and ``model_files.py`` keep what was trained. Knows no machines.
"""
