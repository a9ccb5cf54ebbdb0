# SPDX-License-Identifier: Apache-2.0
"""The stand-in for LSF: its hosts, its queue, and the life of its jobs.

    unshare --pid --fork --kill-child --mount-proc --mount python daemon.py FOLDER

It is process 1 of a PID namespace, so that with it all jobs end. A host is a namespace for network, host name, IPC
and mounts, with its own /dev/shm and TMPDIR; one Ethernet switch connects all. LSF's commands (commands.py) ask through
a socket.
"""

import contextlib
import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import bsub_options as bsub

LAUNCH, COMPUTE = "batch1", ("a01n01", "a01n02")
CORES = 42
SWITCH = "ip link add switch type bridge && ip link set switch up && echo up && exec sleep infinity"
HOST = """
hostname {name} && mount -t tmpfs tmpfs /dev/shm && mount --bind {folder}/hosts /etc/hosts &&
mount -t tmpfs tmpfs {folder}/tmp &&
ip link set lo up && echo up && exec sleep infinity
"""
CABLE = """
ip link add port{i} type veth peer name eth0 netns {pid} && ip link set port{i} master switch up &&
nsenter -t {pid} -n sh -c 'ip addr add {address}/24 dev eth0 && ip link set eth0 up'
"""


class Hosts:
    """The launch node and the compute nodes."""

    def __init__(self, folder: Path) -> None:
        self.addresses = {name: f"10.80.0.{10 + i}" for i, name in enumerate((LAUNCH, *COMPUTE))}
        text = "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in self.addresses.items())
        (folder / "hosts").write_text(text)
        switch = self._namespace(SWITCH, "--net")
        self.pids = {}
        for i, (name, address) in enumerate(self.addresses.items()):
            script = HOST.format(name=name, folder=folder)
            pid = self._namespace(script, "--net", "--uts", "--ipc", "--mount", "--propagation", "private")
            cable = CABLE.format(i=i, pid=pid, address=address)
            subprocess.run(["nsenter", "-t", str(switch), "-n", "sh", "-c", cable], check=True)
            self.pids[name] = pid
        (folder / "pids.json").write_text(json.dumps(self.pids))

    def _namespace(self, script: str, *kinds: str) -> int:
        """Start the process that keeps a namespace."""
        keeper = subprocess.Popen(["unshare", *kinds, "sh", "-ec", script], stdout=subprocess.PIPE, text=True)
        assert keeper.stdout and keeper.stdout.readline() == "up\n", script
        return keeper.pid


def enter(pid: int, folder: str, words: list[str]) -> list[str]:
    """Return the command that runs words on a host, in a folder."""
    return ["nsenter", "-t", str(pid), "-n", "-u", "-i", "-m", "--", "sh", "-c", 'cd "$0" && exec "$@"', folder, *words]


@dataclass
class Job:
    """A job, or an element of an array."""

    number: int
    index: int
    name: str
    at_once: int
    options: dict[str, str]
    shape: bsub.Shape
    script: str
    folder: str
    environment: dict[str, str]
    state: str = "PEND"
    status: int | None = None
    runs: int = 0
    hosts: tuple[str, ...] = ()
    began: float = 0.0
    killed: float | None = None
    back: bool = False
    """It goes back to the queue when it has ended."""
    lost: bool = False
    """It was run before, until a host was lost."""
    sent: list[str] = field(default_factory=list)

    @property
    def called(self) -> str:
        return f"{self.number}[{self.index}]" if self.index else str(self.number)


class Queue:
    """All jobs; a thread for each that runs."""

    def __init__(self, folder: Path, parameters: dict[str, Any]) -> None:
        self.folder, self.parameters = folder, parameters
        self.hosts = Hosts(folder)
        self.jobs: list[Job] = []
        self.changed = threading.Condition()

    # ---- running ---------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Start the pending jobs that fit, in the order of the queue; the caller holds `changed`."""
        for job in [job for job in self.jobs if job.state == "PEND"]:
            running = [other for other in self.jobs if other.state == "RUN"]
            idle = [name for name in COMPUTE if not any(name in other.hosts for other in running)]
            same = [other for other in running if other.number == job.number]
            if job.shape.nodes <= len(idle) and len(same) < job.at_once:
                chosen = tuple(idle[: job.shape.nodes])
                job.hosts = (LAUNCH, *chosen) if job.shape.launch_node else chosen
                job.state, job.runs, job.began, job.killed, job.sent = "RUN", job.runs + 1, time.monotonic(), None, []
                threading.Thread(target=self.run, args=(job,), daemon=True).start()

    def run(self, job: Job) -> None:
        """Run the script of a job once, and decide what becomes of the job."""
        status = self.wait(job, self.start(job))
        for process in members(job):
            send(process, signal.SIGKILL)
        with self.changed:
            again = job.back or bsub.requeues(job.options, status)
            job.state = "PEND" if again else ("EXIT" if status else "DONE")
            job.status, job.hosts, job.back = status, (), False
            if again:  # behind the others
                self.jobs.remove(job)
                self.jobs.append(job)
            self.dispatch()
            self.changed.notify_all()

    def start(self, job: Job) -> "subprocess.Popen[bytes]":
        stem = self.folder / f"{job.number}.{job.index}.{job.runs}"
        script = stem.with_name(f"{stem.name}.sh")
        script.write_text(job.script)
        shell = re.match(r"#!\s*(\S+)", job.script)
        slots = [1, *[job.shape.slots] * job.shape.nodes][-len(job.hosts) :]
        environment = job.environment | self.variables(job, slots, stem.with_name(f"{stem.name}.hosts"))
        command = enter(self.hosts.pids[job.hosts[0]], job.folder, [shell[1] if shell else "/bin/sh", str(script)])
        outputs = [Path(job.folder, named(job, job.options.get(option, "/dev/null"))) for option in ("o", "e")]
        with outputs[0].open("ab") as out, outputs[1].open("ab") as errors:
            return subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=errors if "e" in job.options else out, start_new_session=True,
            )  # fmt: skip

    def variables(self, job: Job, slots: list[int], hostfile: Path) -> dict[str, str]:
        """Return the variables that LSF sets for a job, and those that make this machine's Open MPI a part of LSF."""
        pairs = list(zip(job.hosts, slots, strict=True))
        hosts = [host for host, count in pairs for _ in range(count)]
        hostfile.write_text("".join(f"{host}\n" for host in hosts))
        found = {
            "LSB_JOBID": str(job.number), "LSB_JOBINDEX": str(job.index), "LSB_JOBNAME": job.options.get("J", job.name),
            "LSB_BATCH_JID": job.called, "LSB_QUEUE": job.options.get("q", "normal"), "LSB_SUB_HOST": "login1",
            "LS_SUBCWD": job.folder, "LSB_MCPU_HOSTS": " ".join(f"{host} {count}" for host, count in pairs),
            "LSB_DJOB_HOSTFILE": str(hostfile), "LSB_DJOB_RANKFILE": str(hostfile), "LSB_DJOB_NUMPROC": str(len(hosts)),
        }  # fmt: skip
        if len(text := " ".join(hosts)) <= 4096:  # longer lists are left out: "Environment variables" of LSF
            found["LSB_HOSTS"] = text
        if job.lost:
            found["LSB_RESTART"] = "Y"
        if "o" in job.options:
            found["LSB_OUTPUTFILE"] = named(job, job.options["o"])
        if job.shape.launch_node:
            smt = re.search(r"smt([124])", job.options.get("alloc_flags", "smt4"))
            return found | {"CSM_ALLOCATION_ID": str(job.number), "STAND_IN_SMT": smt[1] if smt else "4"}
        slots_file = hostfile.with_suffix(".slots")
        slots_file.write_text("".join(f"{host} slots={count}\n" for host, count in pairs))
        node = {"HWLOC_SYNTHETIC": f"package:2 core:{max(1, job.shape.slots // 2)} pu:1", "HWLOC_THISSYSTEM": "1"}
        node["LD_PRELOAD"] = job.environment["STAND_IN_CORES"]
        return found | node | {"PRTE_MCA_prte_default_hostfile": str(slots_file)}

    def wait(self, job: Job, process: "subprocess.Popen[bytes]") -> int:
        """Send the signals that are due until the script has ended; return its exit status as LSF counts it."""
        while (status := process.poll()) is None:
            minute, interval = self.parameters["minute"], self.parameters["interval"]
            now = time.monotonic() - job.began
            for i, (at, name) in enumerate(bsub.signals(job.options, minute, job.killed, interval)):
                if at <= now and f"{i}{name}" not in job.sent:
                    job.sent.append(f"{i}{name}")
                    self.signal(job, bsub.number(name))
            time.sleep(0.02)
        return status if status >= 0 else 128 - status

    def signal(self, job: Job, number: signal.Signals) -> None:
        """Send a signal to all processes of a job on its first host; its launcher passes it on to other hosts."""
        first = os.readlink(f"/proc/{self.hosts.pids[job.hosts[0]]}/ns/uts")
        for process in members(job):
            if number is signal.SIGKILL or link(f"/proc/{process}/ns/uts") == first:
                send(process, number)

    # ---- the commands ------------------------------------------------------------------------------

    def bsub(self, words: list[str], asked: dict[str, Any]) -> tuple[int, str]:
        """Submit a job, from a file where bsub parses scripts, else from standard input."""
        options, command = bsub.read(words)
        parses = asked["environment"].get("STAND_IN_BSUB_PARSE_SCRIPT") == "Y"
        if command and parses and Path(asked["folder"], command[0]).is_file():
            script = Path(asked["folder"], command[0]).read_text()
        elif command:
            script = f"#!/bin/sh\n{' '.join(command)}\n"
        elif parses:
            raise bsub.Refused("no script: `bsub < script` does not work on Summit (its User Guide): `bsub script`")
        else:
            script = asked["input"]
        options = bsub.of_script(script) | options
        shape, (name, indices, at_once) = bsub.shape(options, CORES), bsub.array(options)
        bsub.signals(options, 60, None, 10)
        if shape.nodes > len(COMPUTE):
            raise bsub.Refused(f"{shape.nodes} nodes: too many for the stand-in. Job not submitted.")
        with self.changed:
            job_number = 1 + max((job.number for job in self.jobs), default=0)
            self.jobs += [
                Job(job_number, i, name, at_once, options, shape, script, asked["folder"], asked["environment"])
                for i in indices
            ]
            self.dispatch()
            said = f"Job <{job_number}> is submitted to {'queue' if 'q' in options else 'default queue'} <normal>.\n"
            if "K" not in options:
                return 0, said
            mine = [job for job in self.jobs if job.number == job_number]
            self.changed.wait_for(lambda: all(job.state in ("DONE", "EXIT") for job in mine))
            return max(job.status or 0 for job in mine), said

    def bjobs(self, words: list[str], asked: dict[str, Any]) -> tuple[int, str]:
        """Show fields of jobs: `bjobs -noheader [-a] -o "stat jobid exit_code" [-J NAME] [JOB ...]`."""
        everything, fields, name, wanted = False, ["jobid", "stat"], "", []
        words = list(words)
        while words:
            word = words.pop(0)
            everything |= word == "-a"
            if word == "-o":
                fields = words.pop(0).split()
            elif word == "-J":
                name = words.pop(0)
            elif not word.startswith("-"):
                wanted.append(word)
        with self.changed:
            found = [job for job in self.jobs if fits(job, wanted, name)]
            found = [job for job in found if wanted or everything or job.state in ("PEND", "RUN")]
            if not found:
                raise bsub.Refused(f"Job <{' '.join(wanted) or name}> is not found")
            found.sort(key=lambda job: (job.number, job.index))
            lines = [
                {"jobid": job.number, "stat": job.state, "exit_code": job.status or "-", "runs": job.runs}
                for job in found
            ]
        return 0, "".join(" ".join(str(line[name]) for name in fields) + "\n" for line in lines)

    def bkill(self, words: list[str], asked: dict[str, Any]) -> tuple[int, str]:
        """Kill jobs, or with -s send them a signal."""
        name = words[1] if words[:1] == ["-s"] else ""
        with self.changed:
            for job in self.named(words[2 if name else 0 :]):
                if name and job.state == "RUN":
                    self.signal(job, bsub.number(name))
                elif job.state == "RUN":
                    job.killed = time.monotonic() - job.began
                elif job.state == "PEND":
                    job.state, job.status = "EXIT", 130
            self.changed.notify_all()
        return 0, f"Job <{words[-1]}> is being {'signaled' if name else 'terminated'}\n"

    def brequeue(self, words: list[str], asked: dict[str, Any]) -> tuple[int, str]:
        """Kill running jobs, which then go back to the queue with their numbers."""
        with self.changed:
            for job in self.named(words):
                if job.state != "RUN":
                    raise bsub.Refused(f"Job <{job.called}>: Job has already finished, or is not running")
                job.killed, job.back = time.monotonic() - job.began, True
        return 0, f"Job <{words[0]}> is being requeued\n"

    def crash(self, words: list[str], asked: dict[str, Any]) -> tuple[int, str]:
        """End all processes of a host, as a power failure would; the host is back at once. LSF ends its job."""
        keeper = self.hosts.pids[words[0]]
        host = link(f"/proc/{keeper}/ns/uts")
        with self.changed:
            for folder in Path("/proc").glob("[0-9]*"):
                if int(folder.name) != keeper and link(f"{folder}/ns/uts") == host:
                    send(int(folder.name), signal.SIGKILL)
            for job in self.jobs:
                if job.state == "RUN" and words[0] in job.hosts:
                    job.killed, job.back = time.monotonic() - job.began, "r" in job.options
                    job.lost = job.back
        return 0, ""

    def bmod(self, words: list[str], asked: dict[str, Any]) -> tuple[int, str]:
        """Change the run limit of a job: `bmod -W MINUTES JOB`."""
        options, jobs = bsub.read(words)
        with self.changed:
            for job in self.named(jobs):
                job.options |= options
        return 0, f"Parameters of job <{jobs[0]}> are being changed\n"

    def named(self, words: list[str]) -> list[Job]:
        """Find jobs by `12` or `12[3]`; `0`: all."""
        found = [job for job in self.jobs if fits(job, [] if words == ["0"] else words, "")]
        if not found:
            raise bsub.Refused(f"Job <{' '.join(words)}>: No matching job found")
        return found


def fits(job: Job, wanted: list[str], name: str) -> bool:
    """Tell whether a job is one of those wanted, by number or by name."""
    return (not wanted or job.called in wanted or str(job.number) in wanted) and name in ("", job.name)


def named(job: Job, file: str) -> str:
    """Return the name of a file of -o or -e, in which %J is the job's number and %I its index."""
    return file.replace("%J", str(job.number)).replace("%I", str(job.index))


def members(job: Job) -> list[int]:
    """Find the processes of a job, on all hosts: those that have its number."""
    wanted = {f"LSB_JOBID={job.number}".encode(), f"LSB_JOBINDEX={job.index}".encode()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


class Server(socketserver.ThreadingUnixStreamServer):
    """Answers LSF's commands."""

    daemon_threads = True
    queue: Queue


class Handler(socketserver.StreamRequestHandler):
    """Answers one command."""

    server: Server

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        try:
            status, text = getattr(self.server.queue, asked["command"])(asked["words"], asked)
        except bsub.Refused as error:
            status, text = 255, f"{error}\n"
        self.wfile.write(json.dumps([status, text]).encode())


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with Server(str(place / "socket"), Handler) as server:
        server.queue = Queue(place, json.loads((place / "parameters.json").read_text()))
        print("up", flush=True)
        server.serve_forever()
