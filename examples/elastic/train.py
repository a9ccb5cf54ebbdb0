# SPDX-License-Identifier: Apache-2.0
"""An elastic training in NumPy: logistic regression that goes on when ranks are lost, and takes new ones in.

hpccoll run -np 3 --min-np 2 python examples/elastic/train.py
hpccoll submit --site SITE --nodes 4 --min-nodes 2 --spare-nodes 1 examples/elastic/train.py
"""

import argparse
import time

import numpy as np

import hpccoll
from hpccoll import elastic

SAMPLES, FEATURES, BATCH = 600, 8, 10

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--checkpoint", default="", help="a file for every tenth commit, from which the next run goes on")
parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="after each step")
options = parser.parse_args()

random = np.random.default_rng(1)
inputs = random.standard_normal((SAMPLES, FEATURES))
labels = (inputs @ np.arange(FEATURES) > 0).astype(float)
sampler = elastic.ElasticSampler(range(SAMPLES))
state = elastic.ArrayState(
    weights=np.zeros(FEATURES), sampler=sampler, epoch=0, steps=0, path=options.checkpoint, every=10
)


@elastic.run
def train(state: elastic.ArrayState) -> None:
    print(f"rank {hpccoll.rank()} of {hpccoll.size()}: epoch {state.epoch}, step {state.steps}", flush=True)
    while state.epoch < options.epochs:
        sampler.set_epoch(state.epoch)
        mine = list(sampler)
        for step in range(sampler.steps(BATCH)):  # the most steps of any rank: a batch may be empty
            batch = mine[step * BATCH : (step + 1) * BATCH]
            errors = 1 / (1 + np.exp(-inputs[batch] @ state.weights)) - labels[batch]
            total = hpccoll.allreduce(np.append(errors @ inputs[batch], len(batch)), name="gradient")
            state.weights -= total[:-1] / total[-1]
            state.steps += 1
            sampler.record_batch(step, BATCH)
            state.commit()
            time.sleep(options.pause)
        state.epoch += 1


train(state)
if hpccoll.rank() == 0:
    right = ((inputs @ state.weights > 0) == labels).mean()
    print(f"{state.steps} steps, {hpccoll.size()} ranks at the end, {right:.0%} of the samples are right")
