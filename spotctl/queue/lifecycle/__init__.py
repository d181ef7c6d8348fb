"""Runs a queue from its start to its end, through kills.

Read ``run_queue.py``, ``scheduler.py`` (the loop) and ``journal.py``; ``admission_queue.py`` takes in jobs,
``open_job.py`` holds one that runs, ``requests.py`` is what other processes may ask, ``status.py`` what they
may see.
"""
