# SPDX-License-Identifier: Apache-2.0
"""Agents that cannot begin, because their launcher is gone or their host is another one: one sentence each."""

import json
import subprocess
import sys

import pytest

from hpccoll import channel
from hpccoll.launch_protocol import COORDINATOR

DIRECT, ELASTIC = "hpccoll.tools.launch.direct.agent", "hpccoll.tools.launch.elastic.host_agent"
NOBODY = channel.text_of("secret", [("127.0.0.1", 9)])
LOST = {"folder": "/", "seconds": 10.0, "variables": {COORDINATOR: NOBODY}}


@pytest.mark.parametrize(
    ("module", "line", "says"),
    [
        (DIRECT, "", "ended before it had given a task"),
        (ELASTIC, "", "ended before it had given a task"),
        (DIRECT, '{"folder": "/", "ra', "ended before it had given a task"),
        (DIRECT, json.dumps({"folder": "/no/such"}), "the folder /no/such, in which the job was started"),
        (ELASTIC, json.dumps({"folder": "/no/such"}), "the folder /no/such, in which the job was started"),
        (ELASTIC, json.dumps(LOST), "the launcher of the job cannot be reached: 127.0.0.1 port 9: "),
    ],
)
def test_one_sentence(module: str, line: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", module], input=line, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 127 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("hpccoll run: agent of ") and says in done.stderr
