# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll submit`: turns arguments into a Site and a Request, renders, checks and submits the script."""

import argparse
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpccoll import inherited
from hpccoll.errors import HpccollError
from hpccoll.tools.as_given import AS_GIVEN
from hpccoll.tools.lint import check
from hpccoll.tools.submit import script, site
from hpccoll.tools.submit.capacity import UnknownError, too_many_nodes
from hpccoll.tools.submit.layout import RequestError
from hpccoll.tools.submit.script import NAME_CHARACTERS, RUNTIMES, Request

COMMANDS = {"slurm": "sbatch", "lsf": "bsub"}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll submit`."""
    parser = commands.add_parser(
        "submit",
        help="write a job script for a site, check it and submit it",
        usage="hpccoll submit --site NAME --nodes N --time H:MM [options] COMMAND [ARGUMENT ...]",
        allow_abbrev=False,  # an abbreviation may be an option of the program
    )
    add_arguments(parser)
    parser.set_defaults(main=main)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `hpccoll submit` to a parser."""
    parser.add_argument("--site", help=f"{', '.join(site.names())}, or the path of a site.toml of your own")
    parser.add_argument("--sites", action="store_true", help="list the sites, what is known of them and what is not")
    parser.add_argument("--nodes", default="1", help="how many; 1,2,4 makes a scaling study of three jobs (default: 1)")
    parser.add_argument("--time", default="1:00", metavar="H:MM", help="time limit; also minutes, or H:MM:SS (1:00)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run it N times (a job array)")
    parser.add_argument(
        "--tasks-per-node", type=int, metavar="N", help="default: one per GPU, else one per NUMA domain"
    )
    parser.add_argument("--no-gpus", action="store_true", help="leave the node's GPUs alone")
    parser.add_argument("--requeue", action="store_true", help="warn the ranks before the time limit, and go on later")
    parser.add_argument(
        "--min-nodes", type=int, default=0, metavar="N", help="an elastic job, which goes on with N nodes"
    )
    parser.add_argument(
        "--spare-nodes", type=int, default=0, metavar="N", help="of an elastic job: take the place of nodes that fail"
    )
    parser.add_argument("--container", default="", metavar="IMAGE", help="run inside this image")
    parser.add_argument("--runtime", choices=RUNTIMES, default="apptainer", help="what runs the image (apptainer)")
    parser.add_argument("--launcher", default="", help="srun, jsrun or mpirun (default: the site's)")
    parser.add_argument("--account", default="", help="the project that pays")
    parser.add_argument("--name", default="", help="of the job (default: the program's)")
    parser.add_argument("--dry-run", action="store_true", help="print the script and do not submit it")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="train.py --lr 0.1")


def main(arguments: argparse.Namespace) -> int:
    """Print, check and submit the scripts.

    :returns: the exit status: 0, 1 if a script has an error, 2 if the arguments do not fit the site or its
        partition, or that of sbatch or bsub
    """
    if arguments.sites:
        print("\n\n".join(described(site.load(name)) for name in site.names()))
        return 0
    try:
        where, requests = read_arguments(arguments, sys.argv[2:])
        scripts = [script.render(where, replace(request, path=own_programs())) for request in requests]
    except HpccollError as error:
        print(f"hpccoll submit: {error}", file=sys.stderr)
        return 2
    for note in where.notes:
        print(f"hpccoll submit: {where.name}: {note}", file=sys.stderr)
    if where.account and not arguments.account:
        print(f"hpccoll submit: jobs on {where.name} name a project: --account PROJECT", file=sys.stderr)
    if file := missing_program(requests[0]):
        print(f"hpccoll submit: there is no {file} in {Path.cwd()}, where the job will start", file=sys.stderr)
    problems = [
        too_many(where, request, text, arguments.dry_run) for request, text in zip(requests, scripts, strict=True)
    ]
    if any(problems) and not arguments.dry_run:
        return 2
    statuses = [submit(where, text, arguments.dry_run) for text in scripts]
    return 2 if any(problems) else max(statuses)


def too_many(where: site.Site, request: Request, text: str, dry_run: bool) -> bool:
    """Print that a job requests more nodes than it can get, or in a dry run that this is unknown.

    Without a dry run an unknown limit needs no message: sbatch or bsub reports it next.

    :param text: the job script
    """
    try:
        if where.scheduler != "slurm":
            raise UnknownError(f"{where.scheduler.upper()} is not asked")
        problem = too_many_nodes(text, request.all_nodes, dict(inherited.environment()))
    except UnknownError as why:
        if dry_run:
            nodes = f"{request.all_nodes} node{'s' * (request.all_nodes > 1)}"
            note = f"whether a job may have {nodes} was not checked: {why}"
            print(f"hpccoll submit: {note}", file=sys.stderr)
        return False
    if problem:
        print(f"hpccoll submit: {problem}", file=sys.stderr)
    return bool(problem)


def submit(where: site.Site, text: str, dry_run: bool) -> int:
    """Print one script and its problems, and hand it to the scheduler.

    :param dry_run: only print
    :returns: the exit status, see `main`
    """
    print(text, end="", flush=True)
    diagnostics = check(text)
    for diagnostic in diagnostics:
        print(f"hpccoll submit: {diagnostic}", file=sys.stderr)
    if any(diagnostic.severity == "error" for diagnostic in diagnostics):
        return 1
    if dry_run:
        return 0
    command = COMMANDS[where.scheduler]
    if not shutil.which(command):
        print(f"hpccoll submit: no {command} on PATH: log in to {where.name}, or --dry-run", file=sys.stderr)
        return 2
    return hand_over(where, [command], text).returncode


def hand_over(where: site.Site, words: list[str], text: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Give a script to sbatch or bsub, on standard input or as a file, as the site takes it.

    :param words: the command and its options
    :param options: of subprocess.run
    :raises FileNotFoundError: there is no such command
    """
    with tempfile.NamedTemporaryFile(prefix="hpccoll-", suffix=".lsf") as file:  # bsub reads it before it returns
        file.write(text.encode(sys.getfilesystemencoding(), AS_GIVEN))
        file.seek(0)
        if not where.script_file:
            return subprocess.run(words, stdin=file, text=True, check=False, **options)
        return subprocess.run([*words, file.name], stdin=subprocess.DEVNULL, text=True, check=False, **options)


def read_arguments(arguments: argparse.Namespace, words: Sequence[str]) -> tuple[site.Site, list[Request]]:
    """Read the arguments.

    :param words: the command line, for the second line of the script
    :returns: the site, and a request for each number of nodes
    :raises HpccollError: the arguments contradict each other or the site
    """
    if importlib.util.find_spec("jinja2") is None:
        raise RequestError("job scripts are rendered by Jinja2, which is missing: pip install 'hpccoll[submit]'")
    if not arguments.site:
        raise RequestError(f"which site? --site {' or '.join(site.names())}, or --site path/to/site.toml")
    command = program(arguments.command)
    rest = arguments.command  # the program may have its own option --dry-run
    options = words[: len(words) - len(rest)]
    if "--dry-run" in rest and not arguments.dry_run and rest[0] != "--":
        raise RequestError(
            f"--dry-run behind {rest[0]} is an option of {rest[0]}, and the job would be submitted: put it in "
            f"front, or -- in front of {rest[0]} if this is meant"
        )
    requests = [
        Request(
            command=command,
            nodes=nodes,
            minutes=minutes(arguments.time),
            name=arguments.name or default_name(command),
            tasks_per_node=arguments.tasks_per_node,
            gpus=not arguments.no_gpus,
            account=arguments.account,
            repeat=arguments.repeat,
            requeue=arguments.requeue,
            min_nodes=arguments.min_nodes,
            spare_nodes=arguments.spare_nodes,
            container=arguments.container,
            runtime=arguments.runtime,
            launcher=arguments.launcher,
            made_by=one_line(["hpccoll", "submit", *(w for w in options if w != "--dry-run"), *rest]),
        )
        for nodes in node_counts(arguments.nodes)
    ]
    return site.load(arguments.site), requests


def own_programs() -> str:
    """Find the folder of this Python's programs, which the job needs in PATH if `python` is another program here.

    :returns: the folder; "" if PATH has it already
    """
    programs = Path(sys.prefix, "bin")
    return "" if Path(shutil.which("python") or "").parent == programs else str(programs)


def program(words: Sequence[str]) -> tuple[str, ...]:
    """Complete the command: `train.py` means `python train.py`.

    :raises RequestError: no command was given
    """
    words = words[1:] if words[:1] == ["--"] else words
    if not words or not words[0]:
        raise RequestError("which program? hpccoll submit --site summit --nodes 64 --time 2:00 train.py --lr 0.1")
    return ("python", *words) if words[0].endswith(".py") else tuple(words)


def program_file(command: tuple[str, ...]) -> str:
    """Find the program in a command: a Python file, the module after -m, or the first word."""
    modules = command[command.index("-m") + 1 :] if "-m" in command else ()
    return next((word for word in command if word.endswith(".py")), (*modules, command[0])[0])


def missing_program(request: Request) -> str:
    """Find out whether the program's file is missing in the current folder.

    :returns: the file if it is missing; "" if it exists, or if the job looks for it on its PATH or inside the image
    """
    file = program_file(request.command)
    elsewhere = ("/" not in file and not file.endswith(".py")) or (request.container and file.startswith("/"))
    return "" if elsewhere or Path(file).exists() else file


def default_name(command: tuple[str, ...]) -> str:
    """Make a job's name of the program's file, with characters that are allowed in it."""
    name = Path(program_file(command)).stem
    return re.sub(f"[^{NAME_CHARACTERS}]", "-", name).lstrip(".+-") or "job"


def one_line(words: Sequence[str]) -> str:
    """Write a command line as one line: after a line break in a comment the rest would be a command."""
    return shlex.join(words).replace("\n", " ").replace("\r", " ")


def node_counts(text: str) -> list[int]:
    """Read numbers of nodes: `4`, or `1,2,4`.

    :raises RequestError: the text is no list of numbers, or has one twice
    """
    words = text.split(",")
    if not all(is_number(word) and int(word) for word in words):
        raise RequestError(f"--nodes {text}: a number from 1, or several as in 1,2,4")
    counts = [int(word) for word in words]
    if len(set(counts)) < len(counts):
        raise RequestError(f"--nodes {text}: a number twice would be the same job twice; --repeat N repeats a job")
    return counts


def is_number(word: str) -> bool:
    """Return whether a word is a number as Slurm and LSF read them, in ASCII."""
    return word.isascii() and word.isdecimal() and len(word) < 10


def minutes(text: str) -> int:
    """Read a time limit: `90` minutes, `2:00` hours and minutes, `2:00:00` with seconds.

    :returns: minutes, rounded up
    :raises RequestError: the text is no time limit
    """
    words = text.split(":")
    if len(words) > 3 or not all(map(is_number, words)) or any(int(word) > 59 for word in words[1:]):
        raise RequestError(f"--time {text}: minutes, H:MM or H:MM:SS")
    numbers = [int(word) for word in words]
    if len(numbers) == 1:
        return numbers[0]
    return numbers[0] * 60 + numbers[1] + any(numbers[2:])


def described(where: site.Site) -> str:
    """Describe a site as `--sites` shows it."""
    node = where.node
    nics = ", ".join(
        f"{n.name} {n.gbit} Gbit/s" + (f" near GPU {n.near_gpus}" if n.near_gpus else "") for n in node.nics
    )
    lines = [f"{where.name}: {where.title}"]
    lines += [
        f"  {where.scheduler}, {where.launcher}; {node.sockets} socket{'s' if node.sockets > 1 else ''}, "
        f"{node.numa} NUMA domains, {node.cores} cores"
    ]
    lines += [f"  {len(node.gpus)} GPUs on NUMA domains {[gpu.numa for gpu in node.gpus]}"] if node.gpus else []
    lines += [f"  {nics}"] if nics else []
    lines += [f"  note: {note}" for note in where.notes]
    lines += [f"  source: {source}" for source in where.sources]
    lines += [f"  not checked: {fact}" for fact in where.unchecked]
    return "\n".join(lines)
