"""Fits how fast jobs run: scaling on more machines, speed on each type, and estimates for what was not
measured yet.

``scaling_fit.py`` learns from one job's progress, ``speed_fit.py`` from its history on several types,
``throughput_completion.py`` fills in pairs of job and type from those that are known.
"""
