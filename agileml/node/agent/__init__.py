"""Starts, watches and ends a machine's processes.

Read ``supervisor.py``; ``process_tree.py`` finds every descendant, ``watchdog.py`` notices what takes too
long, ``crash_reports.py`` says what a process died of.
"""
