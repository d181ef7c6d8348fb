"""Defines the commands, a module for each group, and what they share.

``launch_flow.py`` and ``queue_flow.py`` lead through plan, question, run and summary; ``options.py`` has the
options that several commands take.
"""
