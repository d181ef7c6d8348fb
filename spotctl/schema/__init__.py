"""Defines files by tables of their keys: what reads a file also writes its JSON Schema and its reference.

Read ``table.py`` (keys and the mappings that hold them), ``kinds.py`` (what a value may be), ``document.py``
(a YAML file and its problems) and ``markdown.py`` (tables of keys for the documentation).

Rule 1: meaning comes from the text as written, not from YAML's guesses: ``on`` is a word, ``1e-3`` a
number, and ``1:30`` is not ninety.
Rule 2: reading goes on after a problem, with a stand-in for the value, so that one run shows them all.
Rule 3: what the JSON Schema refuses, the reader refuses; it also knows what a schema cannot say.

It knows nothing of jobs.
"""
