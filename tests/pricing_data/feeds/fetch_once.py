"""``python -m tests.pricing_data.feeds.fetch_once ROOT ADDRESS NOW REGION...``: one fetch, to be killed.

Writes a line when it begins and one when it is done: 0 where everything could be had.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pricing_data.feeds.aws.client import AwsSettings
from pricing_data.feeds.aws.feed import AwsFeed
from pricing_data.feeds.base import PartKind
from pricing_data.feeds.fetch import fetch_all
from pricing_data.model.units import parse_instant
from pricing_data.store.store import PriceStore


def main() -> int:
    """Fetch the prices of some regions into a store; 1 where not all could be had."""
    root, address, now, *regions = sys.argv[1:]
    settings = AwsSettings(regions=tuple(regions), endpoints={"ec2": address})
    feed = AwsFeed(lambda: parse_instant(now), settings)
    print("begun", flush=True)
    report = fetch_all([feed], PriceStore(Path(root)), kinds=[PartKind.PRICES])
    for part in report.parts:
        print(part.part, part.new, part.known, part.quarantined, part.failure or "", flush=True)
    return 0 if report.is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
