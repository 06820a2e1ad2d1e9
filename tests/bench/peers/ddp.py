"""PyTorch DistributedDataParallel over gloo, as published, on a model whose arithmetic costs nothing.

Fairness: a step of step_ms is one third forward and two thirds backward, as in real training, and the
backward part is slept layer by layer, last layer first. So DDP starts the all-reduce of its first
25 MB bucket while the rest of the backward pass is still "computing": its overlap of communication
with computation works as on real hardware. Gradients have their real size (fp32, every parameter);
their values do not matter to gloo. The optimiser is plain SGD, the cheapest one.
RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME come from the environment.
"""
import time

import torch
from torch.nn.parallel import DistributedDataParallel

import peer

LAYERS = 28


class Pace:
    """Sleeps so that parts of a step end when they would end on real hardware, without drift."""

    def __init__(self):
        self.until = 0.0

    def start(self):
        self.until = time.monotonic()

    def spend(self, seconds):
        self.until += seconds
        time.sleep(max(0.0, self.until - time.monotonic()))


class Layer(torch.autograd.Function):
    """Passes x through; its backward takes its share of the step and yields a full-size gradient."""

    @staticmethod
    def forward(ctx, x, weight, pace, seconds):
        ctx.size, ctx.pace, ctx.seconds = weight.shape, pace, seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.pace.spend(ctx.seconds)
        return grad, grad.new_zeros(1).expand(ctx.size), None, None


class Model(torch.nn.Module):
    def __init__(self, parameters, step_seconds):
        super().__init__()
        share = parameters // LAYERS
        sizes = [share] * (LAYERS - 1) + [parameters - share * (LAYERS - 1)]
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for size in sizes)
        self.pace, self.step_seconds = Pace(), step_seconds

    def forward(self, x):
        self.pace.start()
        self.pace.spend(self.step_seconds / 3)
        for weight in self.weights:
            x = Layer.apply(x, weight, self.pace, self.step_seconds * 2 / 3 / LAYERS)
        return x.sum()


def main():
    options = peer.arguments(__doc__.splitlines()[0]).parse_args()
    run = peer.Peer("ddp", options)

    def body():
        run.join()
        model = Model(options.parameters, options.step_ms / 1000)
        assert sum(weight.numel() for weight in model.parameters()) == options.parameters
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)  # sends rank 0's parameters
        optimiser = torch.optim.SGD(ddp.parameters(), lr=0.01)
        x = torch.zeros(options.batch, requires_grad=True)
        run.begin()
        going = True
        while going:
            optimiser.zero_grad(set_to_none=True)
            run.phase = "all-reduce"
            ddp(x).backward()
            optimiser.step()
            run.steps += 1
            going = run.round_done()

    run.run(body)


main()
