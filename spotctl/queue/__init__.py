"""Many jobs on one computer, under a policy, quotas, a budget and deadlines.

``file.py`` reads a queue file into ``spec.py``; ``allocation`` says who is to have which machines, and is
pure; ``lifecycle`` runs it: the loop, its journal, what others ask of it.
"""
