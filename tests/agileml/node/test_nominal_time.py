"""Nominal time in a job's folder: released while somebody drives, running on while nobody does.

Real waits are tenths of a second; limits on them are one-sided where a busy computer adds to them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from agileml.node.hosts.nominal_time import (
    AgentLifetime,
    ClockDriver,
    LifeBound,
    LifeRecord,
    NominalClock,
    Pacer,
    lapses_at,
)

START: Final = 1_000_000.0
SPEED: Final = 600.0
FAR: Final = START + 1e6
MACHINE: Final = "s1-1"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ClockDriver]:
    (tmp_path / "machines" / MACHINE).mkdir(parents=True)
    LifeBound(tmp_path / "machines" / MACHINE).write(math.inf)
    opened = ClockDriver(tmp_path, START, SPEED)
    yield opened
    opened.close()


def clock_of(folder: Path) -> NominalClock:
    found = NominalClock.open_clock(folder)
    assert found is not None
    return found


def test_a_folder_without_a_clock_has_no_nominal_time(tmp_path: Path) -> None:
    (tmp_path / "machines" / MACHINE).mkdir(parents=True)
    assert NominalClock.open_clock(tmp_path) is None
    pacer, lifetime = Pacer(tmp_path, MACHINE), AgentLifetime(tmp_path, MACHINE)
    before = pacer.now()
    time.sleep(0.02)
    assert pacer.now() - before >= 0.02
    assert not pacer.stands_still()
    assert not lifetime.is_over()
    assert lifetime.limit_wait_ms(4711) == 4711
    lifetime.record_end()
    assert LifeRecord.read_record(tmp_path / "machines" / MACHINE) is None


def test_time_goes_no_further_than_it_was_released(tmp_path: Path, driver: ClockDriver) -> None:
    clock = clock_of(tmp_path)
    driver.release_until(START, time.time(), START + 6)
    time.sleep(0.1)
    assert (clock.now(), clock.stands_still()) == (START + 6, True)
    driver.release_until(START + 6, time.time(), FAR)
    assert not clock.stands_still()
    time.sleep(0.05)
    assert START + 6 + 0.05 * SPEED <= clock.now() < FAR


def test_a_driver_that_does_not_write_is_stalled_though_it_lives(tmp_path: Path, driver: ClockDriver) -> None:
    clock = clock_of(tmp_path)
    driver.release_until(START, time.time(), FAR)
    assert clock.check_driver()
    assert not clock.driver_stalled()
    time.sleep(1.1)
    assert clock.driver_stalled()
    driver.close()
    assert not clock.check_driver()
    assert not clock.driver_stalled(), "nobody drives who could be"


def test_time_runs_on_from_when_the_driver_was_last_there(tmp_path: Path, driver: ClockDriver) -> None:
    """Also if it stood still long before."""
    clock = clock_of(tmp_path)
    driver.release_until(START, time.time() - 100, START + 6)
    clock.check_driver()
    left_at = time.time()
    driver.close()
    time.sleep(0.1)
    now = clock.now()
    assert START + 6 + 0.1 * SPEED <= now <= START + 6 + (time.time() - left_at + 0.01) * SPEED
    assert clock.undriven_at(left_at + 10) == pytest.approx(START + 6 + 10 * SPEED, abs=0.05 * SPEED)


def test_who_drives_next_goes_on_where_time_has_come_to(tmp_path: Path, driver: ClockDriver) -> None:
    driver.release_until(START, time.time(), FAR)
    driver.close()
    time.sleep(0.05)
    resumed_at = clock_of(tmp_path).undriven_at(time.time())
    assert resumed_at > START
    again, clock = ClockDriver(tmp_path, resumed_at, SPEED), clock_of(tmp_path)
    time.sleep(0.05)
    assert clock.now() == resumed_at
    again.close()


def test_two_cannot_drive(tmp_path: Path, driver: ClockDriver) -> None:
    with pytest.raises(TimeoutError):
        ClockDriver(tmp_path, START, SPEED, within_s=0.05)
    driver.close()


def test_a_worker_goes_by_released_time(tmp_path: Path, driver: ClockDriver) -> None:
    pacer = Pacer(tmp_path, MACHINE)
    began = pacer.now()
    time.sleep(0.05)
    assert pacer.now() == began, "nothing was released"
    driver.release_until(START, time.time(), START + 60)
    time.sleep(0.15)
    assert pacer.now() - began == pytest.approx(0.1)
    assert pacer.stands_still()


def test_a_worker_that_leaves_goes_by_real_time_and_waits_as_long_afterwards(
    tmp_path: Path, driver: ClockDriver
) -> None:
    pacer = Pacer(tmp_path, MACHINE)
    began = pacer.now()
    pacer.free = True
    time.sleep(0.1)
    ahead = pacer.now() - began
    assert ahead >= 0.1
    pacer.free = False
    driver.release_until(START, time.time(), START + 0.5 * ahead * SPEED)
    time.sleep(0.2)
    assert pacer.now() - began == pytest.approx(ahead, abs=1e-3), "what it ran ahead is made up for"


def test_a_hold_for_the_training_does_not_hold_the_training(tmp_path: Path, driver: ClockDriver) -> None:
    pacer = Pacer(tmp_path, MACHINE)
    began = pacer.now()
    driver.release_until(START, time.time(), START, awaited=True)
    time.sleep(0.05)
    assert pacer.now() - began >= 0.05


def test_an_unattended_machine_ends_at_its_bound_and_no_worker_passes_it(
    tmp_path: Path, driver: ClockDriver
) -> None:
    bound = START + 0.3 * SPEED
    LifeBound(tmp_path / "machines" / MACHINE).write(bound)
    lifetime, pacer = AgentLifetime(tmp_path, MACHINE), Pacer(tmp_path, MACHINE)
    driver.release_until(START, time.time(), FAR)
    time.sleep(0.4)
    assert not lifetime.is_over(), "whoever drives takes it"
    driver.close()
    time.sleep(0.15)
    assert lifetime.is_over()
    lifetime.record_end()
    life = LifeRecord.read_record(tmp_path / "machines" / MACHINE)
    assert life is not None
    assert (life.seen, life.ended) == (bound, bound)
    assert pacer.now() == pytest.approx(bound / SPEED)


def test_a_machine_that_nobody_drives_ends_with_its_lease(tmp_path: Path) -> None:
    lease = 0.3 * SPEED
    (tmp_path / "machines" / MACHINE).mkdir(parents=True)
    assert lapses_at(tmp_path) is None, "there is no clock yet"
    driver = ClockDriver(tmp_path, START, SPEED, lease_s=lease)
    lifetime, pacer = AgentLifetime(tmp_path, MACHINE), Pacer(tmp_path, MACHINE)
    driver.release_until(START, time.time(), FAR)
    time.sleep(0.5)
    assert not lifetime.is_over(), "a lease is for those whom nobody drives"
    driver.close()
    lapsed = clock_of(tmp_path).lapses_at()
    assert lapsed >= START + 0.5 * SPEED + lease
    assert lapses_at(tmp_path) == lapsed
    time.sleep(0.5)
    assert lifetime.is_over()
    lifetime.record_end()
    life = LifeRecord.read_record(tmp_path / "machines" / MACHINE)
    assert life is not None
    assert life.seen == life.ended == pytest.approx(lapsed, abs=0.001)
    assert pacer.now() == pytest.approx(lapsed / SPEED), "no worker passes it"


def test_who_drives_within_the_lease_keeps_the_machine(tmp_path: Path) -> None:
    (tmp_path / "machines" / MACHINE).mkdir(parents=True)
    driver = ClockDriver(tmp_path, START, SPEED, lease_s=600 * SPEED)
    lifetime = AgentLifetime(tmp_path, MACHINE)
    driver.close()
    time.sleep(0.15)
    assert not lifetime.is_over()
    again = ClockDriver(tmp_path, START + 599 * SPEED, SPEED, lease_s=600 * SPEED)
    time.sleep(0.15)
    assert not lifetime.is_over()
    again.close()
    assert clock_of(tmp_path).lapses_at() >= START + 1199 * SPEED, (
        "a lease begins when the driver was last there"
    )


def test_the_bound_of_a_machine_comes_before_a_later_end_of_its_lease(tmp_path: Path) -> None:
    (tmp_path / "machines" / MACHINE).mkdir(parents=True)
    driver = ClockDriver(tmp_path, START, SPEED, lease_s=600 * SPEED)
    LifeBound(tmp_path / "machines" / MACHINE).write(START)
    lifetime = AgentLifetime(tmp_path, MACHINE)
    driver.close()
    time.sleep(0.15)
    assert lifetime.is_over()
    lifetime.record_end()
    life = LifeRecord.read_record(tmp_path / "machines" / MACHINE)
    assert life is not None
    assert life.ended == START


def test_a_machine_records_that_it_lives(tmp_path: Path, driver: ClockDriver) -> None:
    lifetime = AgentLifetime(tmp_path, MACHINE)
    driver.release_until(START, time.time(), START + 12)
    time.sleep(0.15)
    assert not lifetime.is_over()
    assert LifeRecord.read_record(tmp_path / "machines" / MACHINE) == LifeRecord(START, START + 12, None)
    assert lifetime.limit_wait_ms(4711) <= 101
