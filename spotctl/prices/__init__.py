"""The shell around the price store: where it is, how old its prices are, and what they advise.

Sits between ``pricing_data`` (prices), ``bidbrain`` (beta, expected cost) and the verbs that show both.
"""
