"""Runs a queue from its start to its end, through kills.

Read ``run_queue.py``, ``scheduler.py`` (the loop) and ``journal.py``; ``admission_queue.py`` takes in jobs,
``open_job.py`` holds a running one, ``requests.py`` takes what other processes ask, ``status.py`` shows them
what they may see.
"""
