"""Defines the job file: the keys of each engine's jobs, what they mean, and the values they make.

``kinds.py`` has the kinds of value that only jobs have, ``shared.py`` the keys of every job, ``elastic.py``
those of the elastic trainer and ``command.py`` those of a program. It reads nothing but the job file, and
looks whether the files that it names are there.
"""
