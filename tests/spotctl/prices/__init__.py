"""The shell around the price store."""
