# SPDX-License-Identifier: Apache-2.0
"""The parts of all front ends for frameworks. Nothing in this package imports or names a framework.

adapter.py            the interface to a framework's tensors and parameters: read this first
requests.py           each operation once: tensors in, a handle out
handles.py            handles, which are numbers; poll and synchronize
refused.py            refused calls without a name, which the other ranks must learn of
called.py             errors name the function that the program called
compression.py        the type of tensors between ranks
reductions.py, names.py, sequence_names.py, process_sets.py, objects.py, adasum.py

parameters.py         from an optimizer's arguments to its gradients
variables.py          what ranks compare before the root's values go to all
gradients.py          the gradients of one optimizer, from backward pass to result
buckets.py            groups of gradients that are reduced together, and their names
reducer.py            the computed gradients and the pending buckets of a step
reduction_spec.py     how values are combined
buffer_cache.py       the memory of gradients
sparse.py             gradients that consist of some entries only
deltas.py             Adasum of the changes of an optimizer's step
moments.py            mean and variance over the samples of all ranks
"""
