"""Starts, watches and ends a machine's processes.

Read ``machine_agent.py``, the one agent for trainings and programs; ``notices.py`` hears on the machine of
its eviction, ``process_tree.py`` finds every descendant, ``watchdog.py`` notices what takes too long,
``crash_reports.py`` says what a process died of. Refuses to know what runs on the machine.
"""
