# SPDX-License-Identifier: Apache-2.0
"""The variables with rank and node for ranks that start without MPI; hpccoll.detect reads them."""

from collections.abc import Hashable, Sequence

STARTER = "_HPCCOLL_STARTER"
"""The variable that names what has started the ranks, where it is not `hpccoll run`."""


def variables_of_ranks(nodes: Sequence[Hashable], job: str, starter: str = "") -> list[dict[str, str]]:
    """Make the variables of all ranks, in their order.

    :param nodes: for each rank a name of its machine, equal for ranks of one machine
    :param job: a name that only the ranks of this job have
    :param starter: the name of the system that starts the ranks, for the line at the start; "": `hpccoll run`
    """
    number = {node: at for at, node in enumerate(dict.fromkeys(nodes))}
    return [
        {
            "_HPCCOLL_RANK": str(rank),
            "_HPCCOLL_SIZE": str(len(nodes)),
            "_HPCCOLL_LOCAL_RANK": str(nodes[:rank].count(node)),
            "_HPCCOLL_LOCAL_SIZE": str(nodes.count(node)),
            "_HPCCOLL_NODE": str(number[node]),
            "_HPCCOLL_JOB": job,
            **({STARTER: starter} if starter else {}),
        }
        for rank, node in enumerate(nodes)
    ]
