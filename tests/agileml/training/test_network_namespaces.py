"""Jobs on machines that are network namespaces, behind links that bind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
from msgspec import structs

from agileml.job import TrainingJob
from agileml.node.hosts.local import MachineLocation
from agileml.node.transport.sockets import end_with_silence
from agileml.protocol.events import Setup, Stage
from tests.agileml.processes.netns import Network, remove_what_crashed_runs_left, unavailable
from tests.agileml.processes.real_jobs import QUICK, RunningJob
from tests.agileml.processes.spread import write_numbered

pytestmark = pytest.mark.process

MBIT_PER_S = 40.0
PATIENCE_MS = 60_000
SETUP = Setup(partitions=4, shards=16, clocks=10_000)
"""With enough clocks to be stopped long before the last."""


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    why = unavailable()
    if why is not None:
        pytest.skip(why)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(MBIT_PER_S) as made:
        yield made


def test_a_link_carries_no_more_than_its_rate(network: Network) -> None:
    sender, receiver = network.add("a"), network.add("b")
    size = 2_000_000
    take = (
        "import socket as s\n"
        "with s.create_server(('', 5555)) as server:\n"
        "    print(len(server.accept()[0].makefile('rb').read()))\n"
    )
    give = (
        "import socket as s, sys, time\n"
        "while True:\n"
        "    try:\n"
        "        c = s.create_connection((sys.argv[1], 5555)); break\n"
        "    except ConnectionRefusedError:\n"
        "        time.sleep(0.05)\n"
        "c.sendall(bytes(int(sys.argv[2])))\n"
    )
    taking = subprocess.Popen([*receiver.enter, sys.executable, "-c", take], stdout=subprocess.PIPE)
    began = time.monotonic()
    subprocess.run([*sender.enter, sys.executable, "-c", give, receiver.address, str(size)], check=True)
    told, _ = taking.communicate()
    took = time.monotonic() - began
    assert int(told) == size
    assert took > 0.9 * size * 8 / (MBIT_PER_S * 1e6)
    assert network.traffic("a").sent > size
    assert network.traffic("b").received > size


def test_machines_join_and_leave_in_bulk_and_the_model_is_exact(tmp_path: Path, network: Network) -> None:
    """2 reliable machines, 6 more, and without those again."""
    arguments = {"height": 600, "width": 8, "touched": 40}
    job = TrainingJob("tests.agileml.processes.spread:Spread", arguments, SETUP, 0.4, QUICK, network=True)
    running = RunningJob(tmp_path, job, source=write_numbered(SETUP.shards, tmp_path), where=network.add)
    six = [f"t{number}" for number in range(6)]
    try:
        running.start("r1", "r2")
        running.reach(2)
        running.start(*six)
        running.reach_stage(Stage.TWO)
        running.reach(running.clock + 2)
        running.evict(*six)
        running.reach_stage(Stage.ONE)
        running.reach(running.clock + 2)
        running.stop()
        running.check_result()
        running.check_nothing_left()
        assert running.redone == []
    finally:
        running.client.close()
        running.host.kill_all()


def test_a_job_leaves_stage_1_by_itself_where_the_links_of_reliable_machines_bind(tmp_path: Path) -> None:
    """The ratio alone never would. A clock exchanges 1.7 s of one link, and computes for 0.1 s."""
    arguments = {"height": 2000, "width": 64, "touched": 200}
    mbit_per_s = 8.0
    setup = structs.replace(SETUP, stage2_above=1e9, automatic=True, link_bytes_per_s=mbit_per_s * 1e6 / 8)
    job = TrainingJob("tests.agileml.processes.spread:Spread", arguments, setup, 0.4, QUICK, network=True)
    with Network(mbit_per_s) as network:
        source = write_numbered(setup.shards, tmp_path)
        running = RunningJob(tmp_path, job, source=source, where=network.add)
        try:
            running.start("r1", "t1", "t2", "t3")
            running.reach_stage(Stage.TWO)
            running.reach(running.clock + 1)
            running.stop()
            running.check_result()
            running.check_nothing_left()
        finally:
            running.client.close()
            running.host.kill_all()


def test_what_broken_connections_take_with_them_is_sent_again(tmp_path: Path, network: Network) -> None:
    """A clock moves a few tenths of a second of data, so there is always something to lose."""
    where = network.add("probe")
    if not _can_break(network, where):
        pytest.skip("this kernel resets no connections for others (CONFIG_INET_DIAG_DESTROY, ss -K)")
    arguments = {"height": 4000, "width": 64, "touched": 200}
    timing = replace(QUICK, ask_after_s=0.5)
    job = TrainingJob("tests.agileml.processes.spread:Spread", arguments, SETUP, 0.1, timing, network=True)
    running = RunningJob(tmp_path, job, source=write_numbered(SETUP.shards, tmp_path), where=network.add)
    machines = ("r1", "t1", "t2")
    try:
        running.start(*machines)
        running.reach_stage(Stage.TWO)
        broken = 0
        for _ in range(5):
            running.reach(running.clock + 1)
            broken += sum(network.break_connections(machine) for machine in machines)
        assert broken > 0
        running.reach(running.clock + 2)
        running.stop()
        running.check_result()
        running.check_nothing_left()
        assert running.redone == []
    finally:
        running.client.close()
        running.host.kill_all()


ECHO = """
import socket
with socket.create_server(("", 0)) as server, socket.create_connection(server.getsockname()) as calling:
    answering, _ = server.accept()
    print("ready", flush=True)
    try:
        calling.recv(1)
    except ConnectionError:
        print("reset")
"""


def _can_break(network: Network, where: MachineLocation) -> bool:
    with subprocess.Popen([*where.enter, sys.executable, "-c", ECHO], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        network.break_connections("probe")
        try:
            said, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
    return said == b"reset\n"


CALL = """
import sys, zmq
calling = zmq.Context().socket(zmq.DEALER)
calling.connect(sys.argv[1])
calling.send(b"here")
sys.stdin.read()
"""


def test_a_connection_to_a_machine_that_vanished_ends(network: Network) -> None:
    """No reset comes from it, and nothing was on its way that it would have to acknowledge."""
    where = network.add("m")
    host = ".".join([*where.address.split(".")[:3], "1"])
    with zmq.Context(1) as context, context.socket(zmq.ROUTER) as listening:
        end_with_silence(listening, after_s=2)
        endpoint = f"tcp://{host}:{listening.bind_to_random_port(f'tcp://{host}')}"
        with listening.get_monitor_socket(zmq.EVENT_DISCONNECTED) as ended:
            call = [*where.enter, sys.executable, "-c", CALL, endpoint]
            with subprocess.Popen(call, stdin=subprocess.PIPE):
                assert listening.poll(PATIENCE_MS)
                network.unplug("m")
                assert ended.poll(PATIENCE_MS)
            listening.disable_monitor()


def test_a_machine_can_yield_the_processors_of_the_host(network: Network) -> None:
    where = network.add("modest")
    pipe = subprocess.PIPE
    with subprocess.Popen([*where.enter, "cat"], stdin=pipe, stdout=pipe, start_new_session=True) as idle:
        assert idle.stdin is not None
        assert idle.stdout is not None
        idle.stdin.write(b"in there\n")
        idle.stdin.flush()
        assert idle.stdout.readline() == b"in there\n", "it is in the namespace by now"
        usual = os.getpriority(os.PRIO_PROCESS, idle.pid)
        network.prioritize("modest", 19)
        lowest = os.getpriority(os.PRIO_PROCESS, idle.pid)
        network.prioritize("modest", usual)
        again = os.getpriority(os.PRIO_PROCESS, idle.pid)
    assert (lowest, again) == (19, usual)


CRASHING = """
import os, signal, subprocess
from tests.agileml.processes.netns import Network
with Network(10.0) as network:
    where = network.add("m")
    subprocess.Popen([*where.enter, "sleep", "1000"], stdout=subprocess.DEVNULL)
    print(network.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_crashed_run_left_is_removed_with_the_processes_in_it(network: Network) -> None:
    crashed = subprocess.run([sys.executable, "-c", CRASHING], stdout=subprocess.PIPE, text=True, check=False)
    name = crashed.stdout.strip()
    assert name in _links_and_namespaces()
    network.add("living")
    remove_what_crashed_runs_left()
    assert name not in _links_and_namespaces()
    assert network.name in _links_and_namespaces()


def _links_and_namespaces() -> str:
    commands = (["ip", "-br", "link", "show", "type", "bridge"], ["ip", "netns", "list"])
    return "".join(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands
    )
