# SPDX-License-Identifier: Apache-2.0
"""What may be called when: synchronize, skip_synchronize, zero_grad, clipping, schedulers, the scaler, checkpoints."""

import copy
import pickle
import signal

import pytest
import torch

import hpccoll
import hpccoll.torch as hvd
from hpccoll.torch import DistributedOptimizer

pytestmark = pytest.mark.mpi

EXACT = {"rtol": 1e-5, "atol": 1e-6}


def test_clipping_sees_the_reduced_gradients(pair):
    both = pair()
    for step in range(3):
        both.optimizer.zero_grad()
        both.optimizer_alone.zero_grad()
        both.backward(step)
        both.optimizer.synchronize()
        norms = [torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05) for model in (both.model, both.alone)]
        torch.testing.assert_close(*norms, **EXACT)
        with both.optimizer.skip_synchronize():
            both.optimizer.step()
        both.optimizer_alone.step()
    both.assert_equal(**EXACT)


@pytest.mark.mpi(min_size=2)
def test_zero_grad_while_gradients_are_reduced_is_refused(pair):
    both = pair()
    both.backward(0)
    with pytest.raises(AssertionError, match=r"zero_grad\(\) was called after loss\.backward"):
        both.optimizer.zero_grad()
    both.optimizer.step()
    both.optimizer.zero_grad(set_to_none=False)
    assert all((p.grad == 0).all() for p in both.model.parameters())
    both.optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in both.model.parameters())


@pytest.mark.mpi(min_size=2)
def test_a_backward_pass_too_many_is_refused(pair):
    both = pair()
    both.backward(0)
    with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
        both.backward(1)
    with pytest.raises(AssertionError, match="was changed while it was being reduced"):
        both.optimizer.synchronize()
    both.optimizer.zero_grad()


@pytest.mark.mpi(min_size=2)
def test_gradients_changed_too_early_are_refused(pair):
    both = pair()
    both.backward(0)
    torch.nn.utils.clip_grad_norm_(both.model.parameters(), 1e-3)
    with pytest.raises(AssertionError, match=r"the gradient of .* was changed .* call optimizer.synchronize"):
        both.optimizer.step()
    both.optimizer.zero_grad()
    both.optimizer_alone.zero_grad()
    both.train(2)
    both.assert_equal(**EXACT)


@pytest.mark.mpi(min_size=2)
def test_a_second_synchronisation_is_said_and_left_out(pair, world):
    both = pair(options={"op": hvd.Sum})
    both.backward(0)
    both.optimizer.synchronize()
    once = both.model.head.weight.grad.clone()
    with pytest.warns(UserWarning, match="without optimizer.skip_synchronize"):
        both.optimizer.step()
    assert torch.equal(both.model.head.weight.grad, once)


def test_gradients_are_reduced_while_backward_goes_on(world):
    """The first layer's backward waits until the last layer's gradient is reduced."""
    reduced = []

    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            total = torch.full_like(last.weight, sum(range(1, world.size + 1)) / world.size)
            while not torch.equal(last.weight.grad, total):
                hpccoll.world().progress()
            reduced.append(first.weight.grad is None)
            return gradient

    first, last = torch.nn.Linear(1, 4, bias=False), torch.nn.Linear(4, 1, bias=False)
    optimizer = DistributedOptimizer(
        torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1),
        [("first", first.weight), ("last", last.weight)],
    )
    hidden = Wait.apply(first(torch.ones(1, 1)))
    (last(hidden * 0 + 1) * (world.rank + 1)).sum().backward()
    optimizer.step()
    assert reduced == [True]


def test_schedulers_made_before_and_after(pair):
    both = pair()
    original = both.make(both.model.parameters())
    before = torch.optim.lr_scheduler.ExponentialLR(original, 0.5)
    both.optimizer = DistributedOptimizer(original, both.model.named_parameters())
    after = torch.optim.lr_scheduler.StepLR(both.optimizer, 1, 0.1)
    assert both.optimizer.param_groups[0] is original.param_groups[0]
    original.step()  # without gradients: nothing happens, but the scheduler wants it first
    both.backward(0)
    both.optimizer.step()
    before.step()
    after.step()
    assert both.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5 * 0.1)


def test_hooks_of_a_step_run_once_and_see_reduced_gradients(pair):
    both = pair()
    seen = []
    both.optimizer.register_step_pre_hook(
        lambda optimizer, *_: seen.append(optimizer.param_groups[0]["params"][0].grad.clone())
    )
    both.backward(0)
    both.optimizer.step()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], both.alone.convolution.weight.grad, **EXACT)


def test_state_goes_round(pair):
    """State that the optimizer had before it was wrapped is kept; a saved state makes a new job go on."""
    both = pair(make=lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    both.train(3)
    saved = both.optimizer.state_dict()
    fresh = both.make(both.model.parameters())
    fresh.load_state_dict(saved)
    both.optimizer = DistributedOptimizer(fresh, both.model.named_parameters())
    both.train(2, first=3)
    both.optimizer.load_state_dict(both.optimizer.state_dict())
    both.train(2, first=5)
    both.assert_equal(rtol=1e-4, atol=1e-5)
    assert both.optimizer.state[both.model.head.weight]["step"] == 7


@pytest.mark.mpi(min_size=2)
def test_loading_gives_up_what_is_in_flight(pair):
    both = pair()
    saved = both.optimizer.state_dict()
    both.backward(0)
    both.optimizer.load_state_dict(saved)
    both.optimizer.zero_grad()
    both.optimizer_alone.zero_grad()
    both.train(2)
    both.assert_equal(**EXACT)


def test_groups_added_later_are_reduced(pair):
    both = pair()
    late = torch.nn.Linear(5, 2), torch.nn.Linear(5, 2)
    late[1].load_state_dict(late[0].state_dict())
    hpccoll.broadcast(late[0].weight, out=late[0].weight)
    late[1].load_state_dict(late[0].state_dict())
    both.optimizer.add_param_group({"params": late[0].parameters(), "lr": 0.2})
    both.optimizer_alone.add_param_group({"params": late[1].parameters(), "lr": 0.2})
    both.model = torch.nn.Sequential(both.model, late[0])
    both.alone = torch.nn.Sequential(both.alone, late[1])
    both.optimizer.zero_grad()
    data = both.batch(0)
    for model, (x, y) in ((both.model, both.mine(*data)), (both.alone, data)):
        torch.nn.functional.cross_entropy(model(x), y % 2).backward()
    both.optimizer.step()
    both.optimizer_alone.step()
    both.assert_equal(**EXACT)


def test_frozen_parameters_stay_and_thawed_ones_are_reduced(pair):
    both = pair()
    for model in (both.model, both.alone):
        model.convolution.requires_grad_(False)
    both.optimizer = DistributedOptimizer(both.make(both.model.parameters()), both.model.named_parameters())
    both.train(2)
    assert both.model.convolution.weight.grad is None
    for model in (both.model, both.alone):
        model.convolution.requires_grad_(True)
    both.train(3, first=2)
    both.assert_equal(**EXACT)


@pytest.mark.parametrize("groups", [None, 1, "lists"])
def test_parameters_frozen_in_the_course_of_a_training_stay(pair, groups):
    """A parameter without a gradient is left alone; one with zeros goes on with its momentum, and decays."""

    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)

    both = pair(make=make)
    if groups == "lists":
        groups = [[both.model.convolution.weight, both.model.head.weight], [both.model.convolution.bias]]
    both.optimizer = DistributedOptimizer(make(both.model.parameters()), both.model.named_parameters(), groups=groups)
    for frozen in (False, True, False):
        for model in (both.model, both.alone):
            model.convolution.requires_grad_(not frozen)
        both.train(2)
        assert (both.model.convolution.weight.grad is None) == frozen
    both.assert_equal(**EXACT)


# ---- the gradient scaler ---------------------------------------------------------------------------------


def scaled_step(both, scaler, step, poison=False, recipe=False):
    """One step of the job; `poison` makes one gradient of this rank infinite."""
    both.optimizer.zero_grad()
    (x, y) = both.mine(*both.batch(step))
    loss = torch.nn.functional.cross_entropy(both.model(x), y)
    scaler.scale(loss * (torch.inf if poison else 1.0)).backward()
    if not recipe:
        scaler.step(both.optimizer)
    else:
        both.optimizer.synchronize()
        scaler.unscale_(both.optimizer)
        torch.nn.utils.clip_grad_norm_(both.model.parameters(), 1e3)
        with both.optimizer.skip_synchronize():
            scaler.step(both.optimizer)
    scaler.update()


@pytest.mark.parametrize("recipe", [False, True], ids=["plain", "recipe"])
@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
def test_infinity_on_one_rank_is_everybodys(pair, world, recipe, fused):
    both = pair(make=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        before = [p.detach().clone() for p in both.model.parameters()]
        poisoned = step == 2
        scaled_step(both, scaler, step, poisoned and world.rank == world.size - 1, recipe)
        same = all(torch.equal(a, b) for a, b in zip(before, both.model.parameters(), strict=True))
        assert same == poisoned
        if not poisoned:
            both.optimizer_alone.zero_grad()
            x, y = both.batch(step)
            torch.nn.functional.cross_entropy(both.alone(x), y).backward()
            both.optimizer_alone.step()
    assert scaler.get_scale() == 512.0
    both.assert_equal(**EXACT)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(pair, copied):
    with pytest.raises(TypeError, match=r"cannot be copied or pickled: save its state_dict\(\)"):
        copied(pair().optimizer)


def test_it_is_not_wrapped_twice(pair):
    with pytest.raises(hpccoll.InvalidArgumentError, match="is a DistributedOptimizer already"):
        DistributedOptimizer(pair().optimizer)


class Interrupted(BaseException):
    """What the handler of a signal raises, as for Ctrl-C."""


def interrupt(*_):
    raise Interrupted


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_behind_an_interrupted_one(set_to_none):
    """As in a notebook: rank 0's interrupted step counts, and its next one waits until the others have made it."""
    if hvd.size() == 1:
        return
    world = hpccoll.world()
    parameter = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("interrupted", parameter)], op=hvd.Sum)

    def step(factor: float) -> None:
        optimizer.zero_grad(set_to_none=set_to_none)
        (parameter.sum() * factor).backward()
        optimizer.step()

    step(1.0)
    if hvd.rank() == 0:
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            step(10.0)
        signal.signal(signal.SIGALRM, before)
        for other in range(1, world.size):
            world.send_object("interrupted", other)
    else:
        assert world.recv_object(0) == "interrupted"
        step(10.0)
    step(100.0)
    expected = -(101.0 if hvd.rank() == 0 else 111.0) * hvd.size()
    assert parameter.tolist() == [expected] * 3
    hvd.barrier()
