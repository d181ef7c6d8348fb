"""The billing and eviction rules of the clouds, as values.

Refuses to know any price. Every rule names the page it was taken from; what those pages do not settle
is said beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pricing_data.market import MarketRules, Refund
from pricing_data.units import HOUR_S, Instant, parse_instant

AWS_2016: Final = MarketRules(
    name="aws-2016",
    quantum_s=HOUR_S,
    minimum_s=HOUR_S,
    refund=Refund.EVICTED_HOUR,
    notice_s=120,
    cleared_by_bid=True,
    source=(
        "Harlap et al., Proteus (EuroSys 2017), section 2.2: each hour at the price of its start, nothing "
        "for the hour in which EC2 evicts, two minutes' notice. The EC2 user guide of 2016 said the same; "
        "that edition is no longer online, so this rests on the paper."
    ),
)

AWS: Final = MarketRules(
    name="aws",
    quantum_s=1,
    minimum_s=60,
    refund=Refund.FIRST_HOUR,
    notice_s=120,
    cleared_by_bid=False,
    source=(
        "EC2 user guide, 'Billing for interrupted Spot Instances' and 'Spot Instance interruption notices': "
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html. "
        "The two minutes' notice, best effort, was confirmed; the free first hour (Linux) could not be read "
        "again on the page, and the 60 s minimum is EC2's general rule for per-second billing."
    ),
)

GCP: Final = MarketRules(
    name="gcp",
    quantum_s=1,
    minimum_s=60,
    refund=Refund.FIRST_MINUTE,
    notice_s=30,
    cleared_by_bid=False,
    source=(
        "Compute Engine, 'Spot VMs': https://docs.cloud.google.com/compute/docs/instances/spot. Confirmed: "
        "no maximum lifetime (24 h is the older preemptible VMs' limit); 30 s notice where nothing else is "
        "asked for. That a preemption within the first minute is free was confirmed from course notes only."
    ),
)

AZURE: Final = MarketRules(
    name="azure",
    quantum_s=1,
    minimum_s=0,
    refund=Refund.NOTHING,
    notice_s=30,
    cleared_by_bid=False,
    source=(
        "Azure, 'Use Azure Spot Virtual Machines': "
        "https://learn.microsoft.com/en-us/azure/virtual-machines/spot-vms. Confirmed: 30 s notice, best "
        "effort; the maximum price is optional. A 60 s minimum is reported by third parties and is not on "
        "that page, so none is assumed."
    ),
)

RULES: Final[Mapping[str, MarketRules]] = {rules.name: rules for rules in (AWS_2016, AWS, GCP, AZURE)}

AUCTIONS_ENDED: Final = parse_instant("2017-11-01")
"""AWS gave up clearing by bid and smoothed its spot prices in November 2017."""


def default_rules(market_cloud: str, first_instant: Instant) -> MarketRules:
    """The rules in force in ``market_cloud`` for a trace that begins at ``first_instant``.

    Raises KeyError for a cloud without rules.

    >>> default_rules("aws", parse_instant("2016-06-01")).name
    'aws-2016'
    """
    if market_cloud == "aws" and first_instant < AUCTIONS_ENDED:
        return AWS_2016
    return RULES[market_cloud]
