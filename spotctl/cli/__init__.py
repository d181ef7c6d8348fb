"""Parses commands, calls what does the work, and renders. Decides and computes nothing about runs or money.

``app.py`` assembles the commands and turns errors into exit codes; ``commands`` has a module for each group,
``views`` shows results, ``watch`` follows runs, ``format`` turns values into text.
"""
