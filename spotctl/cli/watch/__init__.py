"""Follows a run while it goes: at a terminal, in a log, or as JSON lines.

``observers.py`` chooses, ``live_view.py`` draws, ``line_writer.py`` writes so that no slow reader holds up a
run, ``run_status.py`` shows a run of another process.
"""
