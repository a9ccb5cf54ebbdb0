# SPDX-License-Identifier: Apache-2.0
"""Which exception, and what it says. Afterwards the job goes on."""

import pytest
import torch

import hpccoll
import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1)]


@pytest.mark.usefixtures("job")
class TestErrors:
    @pytest.fixture(autouse=True)
    def the_job_goes_on(self):
        yield
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()

    def test_arguments(self):
        x = torch.ones(2, 2)
        wrong = {
            "device meta": lambda: hvd.allreduce(torch.ones(1, device="meta"), name="weights"),
            "float8_e5m2": lambda: hvd.allreduce(x.to(torch.float8_e5m2)),
            "layout torch.sparse_coo": lambda: hvd.allreduce(x.to_sparse()),
            "a dict or a list": lambda: hvd.broadcast_parameters(x, 0),
        }
        for text, call in wrong.items():
            with pytest.raises(ValueError, match=text):
                call()

    def test_one_rank_refuses_one_tensor_of_a_group_with_gradients(self):
        """The error of its call on all ranks; the next calls without a name match."""
        refuses, x = hvd.size() - 1, torch.ones(2, requires_grad=True)
        wrong = x.detach().to(torch.float8_e5m2) if hvd.rank() == refuses else x
        text = "dtype torch.float8_e5m2" if hvd.rank() == refuses else f"rank {refuses} has refused"
        with pytest.raises((ValueError, hpccoll.MismatchError), match=text):
            hvd.grouped_allgather([x, wrong, x])
        me = torch.full((1,), float(hvd.rank()), requires_grad=True)
        assert hvd.allgather(me).tolist() == list(range(hvd.size()))

    def test_what_an_elastic_job_recovers_from(self):
        assert issubclass(hpccoll.PeerLostError, hvd.HorovodInternalError)
        assert issubclass(hvd.HorovodInternalError, RuntimeError)
        assert not issubclass(hpccoll.MismatchError, hvd.HorovodInternalError)
        assert hvd.HostsUpdatedInterrupt(skip_sync=True).skip_sync


def test_before_init():
    hvd.shutdown()
    for call in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.join(),
    ):
        with pytest.raises(ValueError, match=r"use hvd\.init"):
            call()
