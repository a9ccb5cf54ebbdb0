# SPDX-License-Identifier: Apache-2.0
"""What front ends for frameworks share. Nothing in this package imports a framework or names one.

adapter.py            what a front end tells about its framework's tensors and parameters: read this first
requests.py           each operation once: tensors in, a handle out
handles.py            handles, which are numbers; poll and synchronize
refused.py            calls without a name that are refused here, of which the other ranks hear
compression.py        what tensors travel as
reductions.py, names.py, sequence_names.py, process_sets.py, objects.py, adasum.py

parameters.py         from an optimizer's arguments to its gradients
gradients.py          the gradients of one optimizer, from backward pass to result
buckets.py            which gradients are reduced together, and under which names
reducer.py            which gradients are computed, which buckets are pending
reduction_spec.py     how values are combined
buffer_cache.py       the memory of gradients
sparse.py             gradients that consist of some entries only
deltas.py             Adasum of what an optimizer's step changes
moments.py            mean and variance over the samples of all ranks
"""
