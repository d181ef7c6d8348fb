"""The controller with its links: what it says by itself, also when it is made again from its entries."""

from __future__ import annotations

from collections.abc import Sequence

from agileml.controller.links import CLIENT, Controller, Entry, agent_name, role_name
from agileml.node.tier import Tier
from agileml.protocol.commands import Failed
from agileml.protocol.events import (
    CheckpointUnreadable,
    Event,
    Installed,
    MachineJoined,
    MachineLost,
    MachineReleased,
    ServerReady,
    Setup,
    WorkerReady,
)
from agileml.protocol.telemetry import MachineGivenUp
from agileml.sync.bounded_staleness import make_barrier

SETUP = Setup(partitions=1, shards=2, clocks=5)
MACHINES = (MachineJoined("r1", Tier.RELIABLE, 1), MachineJoined("t1", Tier.TRANSIENT, 1))


class Told:
    """A controller that is told of two machines, and then what a test has to say."""

    def __init__(self) -> None:
        self.controller = Controller(SETUP, make_barrier(SETUP), max)
        self.record: list[Sequence[Entry]] = []
        self.tell(CLIENT, *MACHINES)

    def tell(self, peer: str, *events: Event) -> None:
        told = len([entry for step in self.record for entry in step if entry.peer == peer])
        self.act([Entry(peer, told + number, event) for number, event in enumerate(events, start=1)])

    def observe(self, event: Event) -> None:
        self.act([self.controller.observe_event(event)])

    def act(self, entries: Sequence[Entry]) -> None:
        self.record.append(entries)
        self.controller.act_on(entries)

    @property
    def given_up(self) -> list[MachineGivenUp]:
        said = self.controller.link_to(CLIENT).unconfirmed_payloads
        return [word for word in said if isinstance(word, MachineGivenUp)]


def test_a_machine_that_is_silent_is_said_to_be_given_up_once() -> None:
    told = Told()
    told.observe(MachineLost("t1"))
    told.observe(MachineLost("t1"))
    told.tell(CLIENT, MachineReleased("t1"))  # which is what its client makes of it
    assert told.given_up == [MachineGivenUp("t1")]


def test_one_whose_processes_die_over_and_over_too_though_it_was_not_announced_yet() -> None:
    told = Told()
    told.tell(agent_name("t2"), MachineLost("t2"))
    assert told.given_up == [MachineGivenUp("t2")]


def test_of_one_that_the_client_knows_to_be_gone_nothing_is_said() -> None:
    told = Told()
    told.tell(CLIENT, MachineLost("t1"))
    told.observe(MachineLost("t1"))
    assert told.given_up == []


def test_nor_of_any_once_the_job_is_over() -> None:
    told = Told()
    generation = told.controller.cluster.generation
    told.tell(role_name("server", "r1", 1), CheckpointUnreadable("r1", generation, "no such file"))
    assert told.controller.cluster.phase.is_over
    told.observe(MachineLost("t1"))
    assert told.given_up == []


def test_nor_where_the_job_ends_with_it_and_says_why() -> None:
    """Its one reliable machine gives up: an application that cannot compute is cured by no other machine."""
    told = Told()
    told.tell(role_name("server", "r1", 1), ServerReady("r1", 1, "at r1"))
    told.tell(role_name("worker", "r1", 1), WorkerReady("r1", 1))
    generation, epoch = told.controller.cluster.generation, told.controller.cluster.epoch
    told.tell(role_name("server", "r1", 1), Installed("r1", 0, epoch, generation))
    assert told.controller.cluster.has_begun
    told.tell(agent_name("r1"), MachineLost("r1"))
    said = told.controller.link_to(CLIENT).unconfirmed_payloads
    assert [word.why for word in said if isinstance(word, Failed)] == ["no reliable machine is left"]
    assert told.given_up == []


def test_a_controller_that_is_made_again_says_the_same_under_the_same_numbers() -> None:
    told = Told()
    told.observe(MachineLost("t1"))
    again = Controller(SETUP, make_barrier(SETUP), max)
    again.replay_journal(told.record)
    assert again.link_to(CLIENT).unconfirmed_payloads == told.controller.link_to(CLIENT).unconfirmed_payloads
