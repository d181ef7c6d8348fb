"""Runs a queue from its start to its end, through kills.

Read ``run_queue.py``, ``scheduler.py`` (the loop) and ``journal.py``. The loop has four parts:
``open_jobs.py`` starts and closes jobs (each an ``open_job.py``), ``lease_rounds.py`` allocates machines,
``budget.py`` accounts for money, and ``job_intake.py`` takes in requests and jobs, which
``admission_queue.py`` judges. ``status.py`` shows other processes what they may see. No module here knows
what a job computes.
"""
