# SPDX-License-Identifier: Apache-2.0
"""Options of mpirun, torchrun and horovodrun, as their documentations write them, are refused with the right one."""

import argparse
import re

import pytest

from hpccoll.tools import horovodrun
from hpccoll.tools.launch import cli, habits


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    commands = argparse.ArgumentParser(allow_abbrev=False).add_subparsers()
    cli.add_parser(commands)
    with pytest.raises(SystemExit, match="2"):
        commands.choices["run"].parse_args([*words, "python", "train.py"])
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        # Horovod: mpirun -np 4 -H localhost:4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -mca pml ob1
        ("-np 4 -H localhost:4 -bind-to none", "-bind-to: .*--launcher-options='-bind-to"),
        ("-np 4 -x NCCL_DEBUG=INFO -x PATH -map-by slot", "-map-by: .*--launcher-options='-map-by"),
        ("-np 4 -mca pml ob1", "-mca: .*--launcher-options='-mca NAME VALUE', or -x OMPI_MCA_NAME=VALUE"),
        # NVIDIA's examples: mpirun --allow-run-as-root -np 8 -N 8 --bind-to numa
        ("--allow-run-as-root -np 8", "--allow-run-as-root: leave it out"),
        ("-np 8 -N 8", "-N: -np is the number of all ranks"),
        ("-np 8 --bind-to=numa", "--bind-to: .*--launcher-options='--bind-to"),
        ("-hostfile hosts -np 8", "-hostfile: give --hostfile FILE"),
        ("-host h1:2 -np 2", "-host: give -H h1:2"),
        ("-npernode 4", "-npernode: -np is the number of all ranks"),
        ("--nproc-per-node=4", "--nproc-per-node: -np is"),
        ("--num-proc 4", "--num-proc: give -np N"),
        ("-genv A 1 -n 2", "-genv: give -x NAME=VALUE"),
        ("-np 2 --fusion-threshold-mb 64", "a flag of horovodrun, which `hpccoll horovodrun` takes"),
    ],
)
def test_a_habit_is_refused_with_the_right_option(typed: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(f"error: .*{says}", refusal(capsys, *typed.split()))


def test_words_behind_the_program_are_its_own() -> None:
    """Also habits, and words with which several habits begin (-m, -p)."""
    commands = argparse.ArgumentParser(allow_abbrev=False).add_subparsers()
    cli.add_parser(commands)
    program = "python -m train -mca -N 8 -bind-to=none --bind-to none -p -host h -np 3 --n 4 -c=-l".split()
    found = commands.choices["run"].parse_args(["-np", "2", "-x", "A=-N", *program])
    assert (found.ranks, found.variables, found.command) == (2, ["A=-N"], program)


@pytest.mark.parametrize("word", ["-m", "-p", "-mc", "--no-such"])
def test_other_words_are_refused_as_they_were_typed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"unrecognized arguments: {word}" in refusal(capsys, word)


def test_what_horovodrun_takes_is_no_news() -> None:
    """Each flag for which horovodrun is named is one of it."""
    ours = {name for flag in horovodrun.FLAGS for name in flag.names.split()}
    named = {name for names, text in habits.HABITS.items() if "horovodrun" in text for name in names.split()}
    assert named <= ours
