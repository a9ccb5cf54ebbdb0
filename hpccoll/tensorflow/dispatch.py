# SPDX-License-Identifier: Apache-2.0
"""How each operation runs: at once, recorded by a tape, as a part of a graph, or compiled by XLA."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll.frontend import names
from hpccoll.frontend.calls import Allreduce, Reducescatter
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet
from hpccoll.frontend.reductions import Adasum
from hpccoll.frontend.refused import each
from hpccoll.horovod.operations import Operations
from hpccoll.tensorflow import adasum, derivatives, eager, graph, xla
from hpccoll.tensorflow.adapter import ADAPTER
from hpccoll.tensorflow.graph_names import unique
from hpccoll.tensorflow.internals import could_possibly_record
from hpccoll.tensorflow.recorded import now, recorded

__all__ = ["OPERATIONS", "TensorFlowOperations", "name_unnamed"]


def name_unnamed(operation: str, process_set: ProcessSet) -> str | None:
    """Name a call without a name by its place in the graph; None where it is eager. See hpccoll.frontend.refused."""
    return None if tf.executing_eagerly() else unique(operation, None, graph.number_of(process_set))


class TensorFlowOperations(Operations[Any]):
    """Operations that a tape records, or that become a part of a graph. See Operations for the methods.

    hpccoll.tensorflow.gradients has the derivatives for graphs. They are missing in two cases: TensorFlow knows no
    derivative of a custom call of XLA, and it would differentiate the single steps of an Adasum.
    """

    name_unnamed = staticmethod(name_unnamed)

    def run_allreduce(self, call: Allreduce, tensors: Sequence[Any]) -> list[Any]:
        if tf.executing_eagerly():
            return self._allreduce_now(call, tensors)
        compute = functools.partial(adasum.combine, self) if call.op is Adasum else graph.allreduce
        if call.op is not Adasum and not xla.compiles():
            return graph.allreduce(call, tensors)
        return recorded(
            lambda *xs: (compute(call, xs), None),
            lambda gradients, _: derivatives.of_allreduce(self, call, gradients),
            tensors,
        )

    def _allreduce_now(self, call: Allreduce, tensors: Sequence[Any]) -> list[Any]:
        if not could_possibly_record():
            if eager.can(call):
                return eager.allreduce(call.name, tensors[0], call.op, call.process_set, call.wire)
            return super().run_allreduce(call, tensors)

        def compute(*xs: Any) -> Any:
            handle = self.requests.begin(call, xs, in_place=False)
            result = handle.wait()
            return [handle], result if call.group else [result], None

        return now(
            compute,
            lambda gradients, _, name: derivatives.of_allreduce(self, dataclasses.replace(call, name=name), gradients),
            tensors,
            call.name,
        )

    def run_allgather(self, tensor: Any, name: str | None, process_set: ProcessSet) -> Any:
        if not tf.executing_eagerly():
            return graph.allgather(tensor, name, process_set)[0]
        if not could_possibly_record():
            return super().run_allgather(tensor, name, process_set)
        return self._allgather_recorded([tensor], [name], process_set)[0]

    def run_grouped_allgather(self, tensors: Sequence[Any], name: str | None, process_set: ProcessSet) -> list[Any]:
        members = names.members(name, len(tensors))
        if not tf.executing_eagerly():
            return [graph.allgather(x, member, process_set)[0] for x, member in zip(tensors, members, strict=True)]
        if not could_possibly_record():
            return super().run_grouped_allgather(tensors, name, process_set)
        return self._allgather_recorded(tensors, members, process_set)

    def _allgather_recorded(
        self, tensors: Sequence[Any], members: Sequence[str | None], process_set: ProcessSet
    ) -> list[Any]:
        def compute(*xs: Any) -> Any:
            handles = each(self.requests.allgather, members, xs, process_set, with_rows=True)
            results, rows = zip(*wait_for_all(handles), strict=True)
            return handles, list(results), [counts.copy() for counts in rows]

        return now(
            compute,
            lambda gradients, rows, *its: [
                derivatives.of_allgather(self, *one, process_set)
                for one in zip(gradients, rows, tensors, its, strict=True)
            ],
            tensors,
            *members,
        )

    def run_broadcast(self, tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        if tf.executing_eagerly():
            return self._broadcast_now(tensor, root_rank, name, process_set)
        if not xla.compiles():
            return graph.broadcast(tensor, root_rank, name, process_set)
        return recorded(
            lambda x: ([graph.broadcast(x, root_rank, name, process_set)], None),
            lambda gradients, _: derivatives.of_broadcast(self, gradients[0], root_rank, name, process_set),
            [tensor],
        )[0]

    def _broadcast_now(self, tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        if not could_possibly_record():
            return super().run_broadcast(tensor, root_rank, name, process_set)

        def compute(x: Any) -> Any:
            handle = self.requests.broadcast(name, x, root_rank, process_set, in_place=False)
            return [handle], [handle.wait()], None

        return now(
            compute,
            lambda gradients, _, its: derivatives.of_broadcast(self, gradients[0], root_rank, its, process_set),
            [tensor],
            name,
        )[0]

    def run_alltoall(self, tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> tuple[Any, Any]:
        if not tf.executing_eagerly():
            return graph.alltoall(tensor, splits, name, process_set)
        if not could_possibly_record():
            return super().run_alltoall(tensor, splits, name, process_set)

        def compute(x: Any) -> Any:
            handle = self.requests.alltoall(name, x, splits, process_set)
            output, rows = handle.wait()
            return [handle], [output, rows], rows

        output, rows = now(
            compute,
            lambda gradients, rows, its: derivatives.of_alltoall(self, gradients[0], rows, its, process_set),
            [tensor],
            name,
        )
        return output, rows

    def run_reducescatter(self, call: Reducescatter, tensors: Sequence[Any]) -> list[Any]:
        if not tf.executing_eagerly():
            return graph.reducescatter(call, tensors)
        if not could_possibly_record():
            return super().run_reducescatter(call, tensors)

        def compute(*xs: Any) -> Any:
            handles = self.begin_reducescatter(call, xs, waits=False)
            return handles, wait_for_all(handles), None

        return now(
            compute,
            lambda gradients, _, *its: derivatives.of_reducescatter(
                self, dataclasses.replace(call, names=list(its)), gradients
            ),
            tensors,
            *call.names,
        )


OPERATIONS = TensorFlowOperations(ADAPTER)
