# SPDX-License-Identifier: Apache-2.0
"""Renders a request as a job script, by the template of the site's scheduler and launcher."""

import re
import shlex
from dataclasses import dataclass, replace

from hpccoll.tools.submit.layout import Layout, RequestError, lay_out
from hpccoll.tools.submit.site import SCHEDULERS, Site

TEMPLATES = {
    "srun": "slurm.sh.j2",
    "jsrun": "jsrun.sh.j2",
    ("slurm", "mpirun"): "slurm.sh.j2",
    ("lsf", "mpirun"): "lsf.sh.j2",
}
ELASTIC = "slurm_elastic.sh.j2"
RUNTIMES = ("apptainer", "pyxis")
NAME_CHARACTERS = "A-Za-z0-9_.+-"
"""Characters of the names of jobs and projects, which stand in directives and in the names of files."""
NAME_RULE = "letters, digits and _, and after the first character also . + and -"
WARNING = 120
"""Seconds before the time limit at which a job that can be requeued gets the signal to save."""


def is_name(text: str) -> bool:
    """Return whether a text may name a job, a project, a study or an arm of it (NAME_RULE)."""
    return re.fullmatch(f"[A-Za-z0-9_][{NAME_CHARACTERS}]*", text) is not None


@dataclass(frozen=True)
class Request:
    """The requested job: `command` on `nodes` nodes for `minutes`."""

    command: tuple[str, ...]
    nodes: int
    minutes: int
    name: str
    tasks_per_node: int | None = None
    gpus: bool = True
    account: str = ""
    repeat: int = 1
    requeue: bool = False
    min_nodes: int = 0
    """The least number of nodes of an elastic job; 0: the job is not elastic."""
    spare_nodes: int = 0
    """Nodes of an elastic job that take the place of others."""
    container: str = ""
    runtime: str = "apptainer"
    launcher: str = ""
    path: str = ""
    """A folder to put in front of the job's PATH."""
    made_by: str = ""
    """The command line that asked for the job."""
    more: tuple[tuple[str, ...], ...] = ()
    """Commands to run after the first one, each in a separate launch, also if an earlier one has failed."""

    @property
    def all_nodes(self) -> int:
        """The nodes of the allocation."""
        return self.nodes + self.spare_nodes


def render(site: Site, request: Request) -> str:
    """Render the job script.

    :raises RequestError: the site cannot run the request
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    request = replace(request, launcher=request.launcher or site.launcher)
    check(site, request)
    layout = lay_out(site, request.tasks_per_node, gpus=request.gpus)
    template = TEMPLATES.get(request.launcher) or TEMPLATES[site.scheduler, request.launcher]
    template = ELASTIC if request.min_nodes else template
    environment = Environment(
        loader=PackageLoader("hpccoll.tools.submit"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    environment.filters["quote"] = shlex.quote
    return environment.get_template(template).render(
        site=site, request=request, layout=layout, warning=WARNING,
        commands=[shlex.join(words) for words in (request.command, *request.more)],
        limit=limit(site, request.minutes), bind=bind(site, layout),
        gpu_directives=["--gpus-per-task=1" if site.gpu_view == "own" else f"--gpus-per-node={len(site.node.gpus)}"],
    )  # fmt: skip


def check(site: Site, request: Request) -> None:
    """Refuse a request that the site cannot run.

    :raises RequestError: with the reason and the possible values
    """
    if request.nodes < 1 or request.minutes < 1 or request.repeat < 1:
        raise RequestError(
            f"{request.nodes} nodes, {request.minutes} minutes, {request.repeat} times: at least 1 of each"
        )
    for option, text in (("--name", request.name), ("--account", request.account or "none")):
        if not is_name(text):
            raise RequestError(f"{option} {text!r}: {NAME_RULE}")
    if request.launcher not in SCHEDULERS[site.scheduler]:
        allowed = " or ".join(SCHEDULERS[site.scheduler])
        raise RequestError(f"--launcher {request.launcher}: {site.name} has {site.scheduler}, where it is {allowed}")
    if request.runtime == "pyxis" and not request.container:
        raise RequestError("--runtime pyxis without an image: --container IMAGE")
    if request.runtime == "pyxis" and request.launcher != "srun":
        raise RequestError("Pyxis is a part of srun: --runtime apptainer, or --launcher srun")
    if request.spare_nodes and not request.min_nodes:
        raise RequestError("--spare-nodes without --min-nodes: only an elastic job can use them")
    if request.min_nodes:
        check_elastic(site, request)
    if request.requeue and request.more:
        raise RequestError("a job of several launches cannot be requeued: it would begin with the first one")
    if request.requeue and request.minutes * 60 <= WARNING:
        raise RequestError(
            f"--requeue warns {WARNING} s before the time limit: more than {WARNING // 60} minutes, please"
        )


def check_elastic(site: Site, request: Request) -> None:
    """Refuse an elastic job that the site cannot run.

    :raises RequestError: with the reason
    """
    if site.scheduler != "slurm":
        raise RequestError(f"--min-nodes: {site.name} has {site.scheduler}; elastic jobs are for Slurm")
    if not 1 <= request.min_nodes <= request.nodes or request.spare_nodes < 0:
        raise RequestError(
            f"--min-nodes {request.min_nodes}, --nodes {request.nodes}, --spare-nodes {request.spare_nodes}: needs "
            "1 <= min <= nodes, and spare nodes of 0 or more"
        )
    if request.runtime == "pyxis" or request.more or request.repeat > 1:
        raise RequestError("--min-nodes goes without --runtime pyxis, --repeat and several launches")


def limit(site: Site, minutes: int) -> str:
    """Write a time limit: hours:minutes:00 for Slurm, hours:minutes for LSF, which has no seconds."""
    text = f"{minutes // 60}:{minutes % 60:02}"
    return f"{text}:00" if site.scheduler == "slurm" else text


def bind(site: Site, layout: Layout) -> str:
    """Return the options of srun that bind each task to separate cores near its GPU."""
    if layout.gpus and site.gpu_view == "own":
        return "--gpus-per-task=1 --gpu-bind=closest --cpu-bind=cores"
    if layout.domains:
        return f"--cpu-bind=map_ldom:{','.join(map(str, layout.domains))}"
    return "--distribution=block:block --cpu-bind=cores"
