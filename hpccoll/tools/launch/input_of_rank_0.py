# SPDX-License-Identifier: Apache-2.0
"""Opens the standard input of rank 0, and becomes the command of the rank; on other ranks it only does the latter.

usage: python -P -m hpccoll.tools.launch.input_of_rank_0 PATH OFFSET COMMAND [ARGUMENT ...]

mpirun of Open MPI 5 starts it: it forwards bytes to rank 0, but not their end, so that a rank that reads all of its
input would wait for ever.
"""

import os
import sys

from hpccoll import inherited

NOT_EXECUTED = 127


def opened(path: str, offset: str) -> int:
    """Open a source of input; the open of a named pipe does not wait for a writer, which may have ended.

    :returns: the file's number
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(file, True)
    if int(offset):
        os.lseek(file, int(offset), os.SEEK_SET)
    return file


def main() -> None:
    """Become the command."""
    path, offset, *command = sys.argv[1:]
    if inherited.environment().get("PMIX_RANK") == "0":
        os.dup2(opened(path, offset), 0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"hpccoll run: {command[0]} cannot be executed: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_EXECUTED)


if __name__ == "__main__":
    main()
