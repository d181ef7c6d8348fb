"""Runs on every machine, whatever its job is.

``agent`` starts and ends processes, ``hosts`` starts machines, ``programs`` runs any program that can
checkpoint, ``transport`` carries messages. ``run_folder.py`` lays out what the processes of one computer
share; ``liveness.py`` tells a silent peer from one that nobody listened to; ``checkpoint_store.py`` keeps
checkpoints of whatever kind, and ``object_folder.py`` reads and writes files, behind any URL. Nothing here
knows the trainer.
"""
