# SPDX-License-Identifier: Apache-2.0
"""Host lists of Slurm are expanded; any other text is refused with a reason."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpccoll
from hpccoll import detect
from hpccoll.detect.hosts import expand, expand_counts, of_lines, of_pairs


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h1", "h1"),
        ("h[1-3,7]", "h1 h2 h3 h7"),
        ("n[01-02]r[1-2],login", "n01r1 n01r2 n02r1 n02r2 login"),
        ("nid[000008-000011]", "nid000008 nid000009 nid000010 nid000011"),
        ("gpu[08-10]-ib,cpu[1]", "gpu08-ib gpu09-ib gpu10-ib cpu1"),
        ("a[9-11]", "a9 a10 a11"),
        ("a[099-101]", "a099 a100 a101"),
        ("x1000c[0-1]s[0-1]b[0,1]n0", "x1000c0s0b0n0 x1000c0s0b1n0 x1000c0s1b0n0 x1000c0s1b1n0 "
         "x1000c1s0b0n0 x1000c1s0b1n0 x1000c1s1b0n0 x1000c1s1b1n0"),
        ("[1-2]a,b", "1a 2a b"),
    ],
)  # fmt: skip
def test_host_lists(text, hosts):
    assert expand(text) == hosts.split()


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,", "h[", "h]", "h[1", "h[[1]]", "h[1-]", "h[-2]", "h[3-1]", "h[a-b]", "h[]", "h[1-99999999]",
     "h[1-2000]r[1-2000]", "h[1]]", "h[²]"],
)  # fmt: skip
def test_what_is_no_host_list(text):
    with pytest.raises(hpccoll.InvalidArgumentError, match="cannot be read"):
        expand(text)


def test_counts():
    assert expand_counts("4(x2),3") == [4, 4, 3]
    assert expand_counts("64") == [64]
    for text in ("", "4(x2", "4x2", "4(x)", "a", "4(x2)3", "-1", "4(x99999999)"):
        with pytest.raises(hpccoll.InvalidArgumentError):
            expand_counts(text)


def test_pairs_and_lines():
    assert of_pairs("hostA 4 hostB 2") == (("hostA", "hostB"), (4, 2))
    assert of_lines("a\na\nb\na\n") == (("a", "b"), (3, 1))
    assert of_lines("") == ((), ())
    for text in ("hostA", "hostA four", "4 hostA"):
        with pytest.raises(hpccoll.InvalidArgumentError):
            of_pairs(text)


PBS = {"PBS_JOBID": "12.server", "PBS_NODEFILE": "/var/spool/pbs/aux/12.server"}


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        (PBS, "12.server"),
        (PBS | {"PBS_NODEFILE": sys.executable}, "12.server"),
        ({"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": "/nowhere"}, "7"),
        ({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 1 b"}, ""),
        ({}, ""),
    ],
)
def test_a_job_has_its_name_where_its_hosts_cannot_be_read(variables, job):
    """PBS Professional's guide: the host file is on the first node; its launcher hands the variable to all ranks."""
    assert detect.job(variables) == job


def test_init_needs_no_host_file(tmp_path):
    for file in (PBS["PBS_NODEFILE"], str(tmp_path), sys.executable):  # none, a folder, no text
        rank = [sys.executable, "-P", "-c", "import hpccoll; hpccoll.init(); print(hpccoll.size())"]
        env = {**os.environ, **PBS, "PBS_NODEFILE": file}
        done = subprocess.run(rank, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "1\n", done.stderr
        assert "a job of unknown hosts" in done.stderr


def test_a_host_file_that_is_no_text():
    with pytest.raises(hpccoll.InvalidArgumentError, match=f"the host file {sys.executable} is no text"):
        detect.allocation(PBS | {"PBS_NODEFILE": sys.executable})


names = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
parts = st.tuples(st.integers(0, 120), st.integers(0, 30), st.integers(1, 4))  # first, how many more, digits
words_of_lists = st.tuples(names, st.lists(parts, max_size=4), st.sampled_from(["", "-ib", "x"]))


def written(part):
    first, more, width = part
    one = str(first).zfill(width)
    return f"{one}-{str(first + more).zfill(width)}" if more else one


def meant(part):
    first, more, width = part
    return [str(n).zfill(width) for n in range(first, first + more + 1)]


@settings(deadline=None)
@given(st.lists(words_of_lists, min_size=1, max_size=5))
def test_what_was_written_is_read(words):
    text = ",".join(f"{name}[{','.join(map(written, own))}]{end}" if own else name + end for name, own, end in words)
    want = []
    for name, own, end in words:
        want += [name + n + end for part in own for n in meant(part)] if own else [name + end]
    assert expand(text) == want


@settings(deadline=None)
@given(st.text(alphabet="ab01[]-,x()", max_size=24))
def test_any_text_is_read_or_refused(text):
    for reader in (expand, expand_counts):
        try:
            found = reader(text)
        except hpccoll.InvalidArgumentError:
            continue
        assert found


@settings(deadline=None)
@given(st.lists(st.integers(0, 256), min_size=1, max_size=40))
def test_counts_in_short_form(counts):
    short, at = [], 0
    while at < len(counts):
        run = next((i for i in range(at, len(counts)) if counts[i] != counts[at]), len(counts)) - at
        short.append(f"{counts[at]}(x{run})" if run > 1 else str(counts[at]))
        at += run
    assert expand_counts(",".join(short)) == counts
