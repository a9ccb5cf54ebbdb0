# SPDX-License-Identifier: Apache-2.0
"""Write the job scripts of slurm/ again: each is the output of one `hpccoll submit --dry-run`.

python slurm/render.py            rewrite them
python slurm/render.py --check    change nothing; exit status 1 if one is not up to date
"""

import argparse
import shlex
import sys
from pathlib import Path

from hpccoll.tools.submit import cli, script

HERE = Path(__file__).resolve().parent
PROGRAM = ["examples/digits/train.py"]
ELASTIC = ["examples/elastic/train.py"]
CHECKPOINT = ["--checkpoint", "train.h5"]
SCRIPTS = {
    "cpu.sh": "--site generic-cpu --time 0:30",
    "multi-node.sh": "--site generic-cpu --nodes 2 --time 0:30",
    "gpu.sh": "--site generic-gpu --nodes 2 --time 0:30",
    "scaling-1.sh": "--site generic-cpu --nodes 1 --repeat 3 --time 0:30 --name scaling-1",
    "scaling-2.sh": "--site generic-cpu --nodes 2 --repeat 3 --time 0:30 --name scaling-2",
    "scaling-3.sh": "--site generic-cpu --nodes 3 --repeat 3 --time 0:30 --name scaling-3",
    "requeue.sh": "--site generic-cpu --nodes 2 --requeue --time 0:30",
    "elastic.sh": "--site generic-cpu --nodes 2 --min-nodes 1 --spare-nodes 1 --requeue --time 0:30",
    "mpirun.sh": "--site generic-cpu --nodes 2 --launcher mpirun --time 0:30",
    "mpirun-requeue.sh": "--site generic-cpu --nodes 2 --launcher mpirun --requeue --time 0:30",
    "apptainer.sh": "--site generic-gpu --nodes 2 --container hpccoll.sif --time 0:30",
    "pyxis.sh": "--site generic-gpu --nodes 2 --container ./hpccoll.sqsh --runtime pyxis --time 0:30",
    "frontier.sh": "--site frontier --nodes 64 --account ABC123 --time 2:00",
    "perlmutter.sh": "--site perlmutter --nodes 64 --account m1234 --time 2:00",
    "jsrun.sh": "--site summit --nodes 64 --account ABC123 --time 2:00",
    "jsrun-cpu.sh": "--site summit --nodes 2 --no-gpus --account ABC123 --time 0:30",
    "jsrun-requeue.sh": "--site summit --nodes 64 --account ABC123 --requeue --repeat 3 --time 2:00",
    "lsf-mpirun.sh": "--site generic-lsf --nodes 2 --time 0:30",
    "lsf-mpirun-requeue.sh": "--site generic-lsf --nodes 2 --requeue --time 0:30",
}


def rendered(options: str) -> str:
    """Render the script of `hpccoll submit OPTIONS PROGRAM`, with a checkpoint if it is requeued."""
    program = ELASTIC if "--min-nodes" in options else PROGRAM
    words = [*shlex.split(options), *program, *(CHECKPOINT if "--requeue" in options else [])]
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    where, (request,) = cli.read_arguments(parser.parse_args(words), words)
    return script.render(where, request)


def main() -> int:
    stale = []
    for name, options in SCRIPTS.items():
        path, text = HERE / name, rendered(options)
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
                path.chmod(0o755)
    print(f"{'not up to date' if '--check' in sys.argv else 'rewritten'}: {', '.join(stale) or 'none'}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
