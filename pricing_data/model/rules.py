"""States the billing and eviction rules of the clouds, as values.

Knows no price. Every rule names the page it was taken from, and what those pages leave open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pricing_data.model.market import ChargedPrice, MarketRules, Refund
from pricing_data.model.units import HOUR_S, Instant, parse_instant

AWS_2016: Final = MarketRules(
    name="aws-2016",
    quantum_s=HOUR_S,
    minimum_s=HOUR_S,
    refund=Refund.EVICTED_HOUR,
    notice_s=120,
    cleared_by_bid=True,
    source=(
        "Harlap et al., Proteus (EuroSys 2017), section 2.2, and TierML (CMU-PDL-16-102), sections 2.2 and "
        "3.4: each hour at the price of its start, nothing for the hour in which EC2 evicts, two minutes' "
        "notice. The EC2 user guide of 2016 is no longer online; that hours were charged at the price of "
        "their start is repeated in AWS's announcement of the end of the auctions (November 2017), and the "
        "free hour by contemporaries (https://autoscalr.com/2017/10/05/"
        "aws-per-second-billing-differs-spot-vs-demand/)."
    ),
)

AWS_2016_PAYING_BIDS: Final = replace(
    AWS_2016,
    name="aws-2016, paying bids",
    charge=ChargedPrice.BID,
    source=(
        "TierML (CMU-PDL-16-102), sections 3.4 and 4.7: what if users were charged their bids? Supposed by "
        "the paper, never a rule of EC2; for the paper's protocol only, and so not among ``RULES``."
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
        "EC2 user guide, 'Billing for interrupted Spot Instances': "
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html. "
        "Confirmed (Linux and Windows, not SUSE): interrupted by EC2 in its first hour, no charge; later, or "
        "ended by the user, the seconds used. At the spot price in effect, to the second: AWS whitepaper "
        "'Overview of Amazon EC2 Spot Instances'. 60 s at least: AWS, 'Announcing Amazon EC2 per second "
        "billing', 2017-10-02. Two minutes' notice, best effort: 'Spot Instance interruption notices'."
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
        "Compute Engine, 'Spot VMs': https://docs.cloud.google.com/compute/docs/instances/spot (as of "
        "2026-03-19). Confirmed: no maximum lifetime unless one is asked for; up to 30 s of notice, best "
        "effort; no bill for a VM preempted less than a minute after it was created (premium operating "
        "systems are billed even then). The 60 s minimum is Compute Engine's general rule."
    ),
)

GCP_PREEMPTIBLE: Final = replace(
    GCP,
    name="gcp-preemptible",
    max_lifetime_s=24 * HOUR_S,
    source=(
        "Compute Engine, 'Create and use preemptible VMs': "
        "https://docs.cloud.google.com/compute/docs/instances/create-use-preemptible. Confirmed: the older "
        "kind of Spot VM, at the same prices, always stopped after 24 hours. Otherwise as Spot VMs; that "
        "the stop after 24 hours is billed like a preemption is taken from its being called one. Certain "
        "actions (a stop and start by the user) restart the 24 hours; not modelled."
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
        "effort; the maximum price is optional, and -1 stands for none. No refund is mentioned. A 60 s "
        "minimum is reported by third parties and is not on that page, so none is assumed."
    ),
)

RULES: Final[Mapping[str, MarketRules]] = {
    rules.name: rules for rules in (AWS_2016, AWS, GCP, GCP_PREEMPTIBLE, AZURE)
}

AUCTIONS_ENDED: Final = parse_instant("2017-11-01")
"""AWS gave up clearing by bid and smoothed its spot prices in November 2017."""


def default_rules(market_cloud: str, first_instant: Instant) -> MarketRules:
    """Returns the rules in force in ``market_cloud`` for a trace that begins at ``first_instant``.

    Raises KeyError for a cloud without rules.

    >>> default_rules("aws", parse_instant("2016-06-01")).name
    'aws-2016'
    """
    # A trace that spans the change is billed by the rules of its begin.
    if market_cloud == "aws" and first_instant < AUCTIONS_ENDED:
        return AWS_2016
    return RULES[market_cloud]


def combine_rules(several: Sequence[MarketRules]) -> MarketRules:
    """Returns what holds in markets of any of these rules: the shortest notice, the least refund.

    Serves decisions among them; each market is billed by its own. Raises ValueError where they bill by
    different steps, or where only some clear by bid: then nothing holds for all of them.
    """
    first = several[0]
    for other in several[1:]:
        # Refunds and notices have a safe common value; billing steps and what evicts have none.
        if (other.quantum_s, other.cleared_by_bid, other.charge) != (
            first.quantum_s,
            first.cleared_by_bid,
            first.charge,
        ):
            raise ValueError(f"the rules {first.name} and {other.name} bill in different ways")
    names = sorted({rules.name for rules in several})
    if len(names) == 1:
        return first
    lifetimes = [rules.max_lifetime_s for rules in several if rules.max_lifetime_s is not None]
    return MarketRules(
        name=" + ".join(names),
        quantum_s=first.quantum_s,
        minimum_s=max(rules.minimum_s for rules in several),
        # A refund that only some markets give cannot be counted on.
        refund=first.refund if len({rules.refund for rules in several}) == 1 else Refund.NOTHING,
        notice_s=min(rules.notice_s for rules in several),
        cleared_by_bid=first.cleared_by_bid,
        max_lifetime_s=min(lifetimes, default=None),
        charge=first.charge,
        source="what all of them promise; each market is billed by its own",
    )
