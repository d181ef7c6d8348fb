"""Reads a job file and resolves it to a run's settings, or says what is wrong and where.

Read ``spec.py`` (a job as values), ``keys`` and ``file.py`` (how a file becomes one), ``price_sources.py``
(files, the price store, the bundled market), ``resolve.py`` (markets and rules), ``choices.py`` and
``settings.py`` (what a run is started with) and ``checks.py`` (everything that can be refused before a
start). ``input_survey.py`` measures the input, ``other_tools.py`` recognises job files of other programs.
Starts nothing.
"""
