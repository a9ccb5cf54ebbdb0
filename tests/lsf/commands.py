# SPDX-License-Identifier: Apache-2.0
"""LSF's commands as the stand-in has them: they ask its daemon, except blaunch, which enters a host by itself."""

import json
import os
import shlex
import socket
import sys
from pathlib import Path


def main() -> int:
    command, *words = sys.argv[1:]
    folder = Path(os.environ["STAND_IN_FOLDER"])
    if command == "blaunch":  # blaunch HOST COMMAND ..., in place of ssh
        pid = json.loads((folder / "pids.json").read_text())[words[0]]
        script = f"cd {shlex.quote(os.getcwd())} && {' '.join(words[1:])}"
        os.execvp("nsenter", ["nsenter", "-t", str(pid), "-n", "-u", "-i", "-m", "--", "sh", "-c", script])
    asked = {"command": command, "words": words, "folder": os.getcwd(), "environment": dict(os.environ), "input": ""}
    if command == "bsub" and not sys.stdin.isatty():
        asked["input"] = sys.stdin.read()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "socket"))
        connection.sendall(json.dumps(asked).encode() + b"\n")
        with connection.makefile() as answer:
            status, text = json.load(answer)
    print(text, end="", file=sys.stderr if status == 255 else sys.stdout)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
