"""Reads training input, cuts it into shards, and keeps models and checkpoints.

Read ``tables.py`` (rows from any file), ``sharding.py`` and ``shards.py``; ``file_survey.py``,
``column_names.py`` and ``sources.py`` find out what a file is. ``checkpoint_store.py`` and ``model_files.py``
keep what was trained. Knows no machines.
"""
