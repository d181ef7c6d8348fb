"""The command line: parse, call, render. It decides nothing and computes nothing about runs or money.

``app.py`` assembles the commands and turns errors into exit codes; ``commands`` has a module for each group,
``views`` what they show, ``watch`` who follows a run, ``format`` how values become text.
"""
