"""Runs many jobs on one computer, under a policy, quotas, a budget and deadlines.

``file.py`` reads a queue file into ``spec.py``; ``allocation`` decides which job holds which machines, and is
pure; ``lifecycle`` runs it: the loop, its journal, requests from other processes.
"""
