"""Reads price and capacity files, and judges their rows.

``layouts.py`` recognises a file by its columns; ``traces.py`` reads prices (``csv_columns.py`` row by row,
``large_csv.py`` for files of millions), ``availability.py`` and ``capacity_rows.py`` read capacity, and
``reference_files.py`` rates and list prices. ``quality.py`` finds rows that cannot be true; ``batches.py`` is
the form that readers and feeds hand on; ``source_priority.py`` chooses between sources. Knows nothing of
where rows are stored.
"""
