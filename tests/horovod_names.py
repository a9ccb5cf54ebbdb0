# SPDX-License-Identifier: Apache-2.0
"""The public names of Horovod 0.28.1's front ends, and private ones that programs import, from its source."""

from typing import Any

from hpccoll.not_there import PAGE

_BASICS = (
    "init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank cross_rank "
    "is_homogeneous mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built "
    "cuda_built rocm_built"
)
_SETS = "ProcessSet global_process_set add_process_set remove_process_set"
_REDUCTIONS = "Average Sum Adasum Min Max Product"
_TORCH_OPERATIONS = (
    "allreduce allreduce_async allreduce_ allreduce_async_ grouped_allreduce grouped_allreduce_async "
    "grouped_allreduce_ grouped_allreduce_async_ sparse_allreduce_async allgather allgather_async grouped_allgather "
    "grouped_allgather_async broadcast broadcast_async broadcast_ broadcast_async_ alltoall alltoall_async "
    "reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async join barrier poll synchronize"
)
_TENSORFLOW_OPERATIONS = (
    "allgather grouped_allgather broadcast broadcast_ alltoall join rank_op local_rank_op size_op local_size_op "
    "process_set_included_op _allreduce _grouped_allreduce _reducescatter _grouped_reducescatter _executing_eagerly "
    "handle_average_backwards_compatibility check_num_rank_power_of_2"
)
_KERAS = (
    "Average Sum Compression callbacks elastic DistributedOptimizer broadcast_global_variables allreduce allgather "
    "broadcast reducescatter load_model"
)
NAMES = {
    "": "run __version__",
    "data": "BaseDataLoader AsyncDataLoaderMixin",
    "data.data_loader_base": "BaseDataLoader AsyncDataLoaderMixin",
    "spark.common.store": "Store FilesystemStore LocalStore HDFSStore DBFSLocalStore",
    "torch": f"{_BASICS} {_SETS} {_REDUCTIONS} {_TORCH_OPERATIONS} Compression DistributedOptimizer SyncBatchNorm "
    "allgather_object broadcast_object broadcast_optimizer_state broadcast_parameters elastic check_extension "
    "mpi_ops functions optimizer compression sync_batch_norm HorovodInternalError split_list",
    "torch.mpi_ops": f"{_BASICS} {_SETS} {_REDUCTIONS} {_TORCH_OPERATIONS} Compression HorovodInternalError _basics "
    "_handle_map _check_function handle_average_backwards_compatibility num_rank_is_power_2",
    "torch.functions": "allgather_object broadcast_object broadcast_optimizer_state broadcast_parameters",
    "torch.optimizer": "DistributedOptimizer",
    "torch.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "torch.sync_batch_norm": "SyncBatchNorm",
    "torch.elastic": "run TorchState ElasticSampler State ObjectState HorovodInternalError HostsUpdatedInterrupt",
    "tensorflow": f"{_BASICS} {_SETS} {_REDUCTIONS} {_TENSORFLOW_OPERATIONS} Compression SyncBatchNormalization "
    "DistributedOptimizer DistributedGradientTape PartialDistributedGradientTape BroadcastGlobalVariablesHook "
    "allreduce grouped_allreduce reducescatter grouped_reducescatter allgather_object broadcast_object "
    "broadcast_object_fn broadcast_variables broadcast_global_variables elastic mpi_ops functions compression util "
    "gradient_aggregation sync_batch_norm LocalGradientAggregationHelper check_extension gpu_available split_list "
    "_make_subgraph _cache vars_to_refs refs_to_vars support_non_legacy_keras_optimizers",
    "tensorflow.mpi_ops": f"{_BASICS} {_SETS} {_REDUCTIONS} {_TENSORFLOW_OPERATIONS} MPI_LIB _basics _normalize_name",
    "tensorflow.data.compute_service": "TfDataServiceConfig tf_data_service send_to_data_service compute_worker_fn",
    "tensorflow.data.compute_worker": "TfDataServiceConfig compute_worker_fn main",
    "tensorflow.elastic": "run TensorFlowState TensorFlowKerasState ObjectState",
    "tensorflow.keras": f"{_BASICS} {_SETS} {_KERAS}",
    "keras": f"{_BASICS} {_SETS} {_KERAS} PartialDistributedOptimizer",
    "keras.elastic": "run KerasState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback",
    "mxnet": f"{_BASICS} {_SETS} {_REDUCTIONS} Compression DistributedOptimizer DistributedTrainer allreduce "
    "allreduce_ grouped_allreduce grouped_allreduce_ allgather grouped_allgather broadcast broadcast_ alltoall "
    "reducescatter grouped_reducescatter allgather_object broadcast_object broadcast_parameters check_extension "
    "split_list mpi_ops functions compression",
}


def missing(module: Any, front_end: str) -> list[str]:
    """List the names that a module lacks and for which it names no replacement."""
    wrong = []
    for name in NAMES[front_end].split():
        try:
            getattr(module, name)
        except AttributeError as error:
            if f"See {PAGE}" not in str(error):
                wrong.append(name)
    return wrong
