"""Where prices come from: one feed per cloud, all behind ``base.Feed``.

A feed imports its SDK when it is first asked, never before: this package loads without any of them.
"""
