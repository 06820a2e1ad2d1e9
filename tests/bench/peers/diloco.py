"""Classical DiLoCo: H local steps, then one synchronous all-reduce of the dense fp32 pseudo-gradient.

The outer optimiser is the paper's (SGD with Nesterov momentum 0.9, learning rate 0.7), on every rank
alike. Local steps are slept; the traffic is real: 4 bytes per parameter through gloo's ring, each round.
Nothing overlaps, as in the original algorithm: nobody computes while the all-reduce runs.
RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME come from the environment.
"""
import time

import torch
import torch.distributed as dist

import peer

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9


def local_steps(run, local, count, step_seconds):
    run.phase = "local steps"
    until = time.monotonic()
    for _ in range(count):
        until += step_seconds
        time.sleep(max(0.0, until - time.monotonic()))
        run.steps += 1
    local.sub_(1e-6)  # whatever the steps would have learnt


def outer_step(run, local, shared, momentum, gradient):
    torch.sub(shared, local, out=gradient)
    run.phase = "all-reduce"
    dist.all_reduce(gradient)
    gradient.div_(run.world)
    momentum.mul_(OUTER_MOMENTUM).add_(gradient)
    shared.sub_(gradient.add_(momentum, alpha=OUTER_MOMENTUM), alpha=OUTER_RATE)
    local.copy_(shared)


def main():
    parser = peer.arguments(__doc__.splitlines()[0])
    parser.add_argument("--inner-steps", type=int, default=32, help="H, local steps between all-reduces")
    options = parser.parse_args()
    run = peer.Peer("diloco", options, {"inner_steps": options.inner_steps})

    def body():
        run.join()
        shared = torch.zeros(options.parameters)
        dist.broadcast(shared, 0)
        local, momentum, gradient = shared.clone(), torch.zeros_like(shared), torch.zeros_like(shared)
        run.begin()
        going = True
        while going:
            local_steps(run, local, options.inner_steps, options.step_ms / 1000)
            outer_step(run, local, shared, momentum, gradient)
            going = run.round_done()

    run.run(body)


main()
