"""Provides ready-made applications, and what they are compared with.

``mf.py`` (matrix factorization; ``compiled.py`` with Numba), ``mlr.py`` (logistic regression) and ``lda.py``
(topics). ``als.py`` is the trusted solver beside matrix factorization; ``planted*.py`` make data whose answer
is known. They are written against ``agileml.api``, as a user's are.
"""
