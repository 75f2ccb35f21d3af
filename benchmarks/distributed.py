"""Trains the GPT of `models.py` on two devices by DDP and by FSDP2, and compares the losses with one device's.

    python benchmarks/distributed.py                  # two GPUs, over NCCL
    python benchmarks/distributed.py --device cpu     # two processes on a CPU, over gloo, of a tiny model

Each way trains torch's layers and tritongen's from the same weights on the same batches. DDP runs under autocast of bf16.
FSDP2 shards each block, keeps f32 weights, computes in bf16 (its own policy), and checkpoints the activations of blocks.
A loss of two devices is the mean of theirs. The table shows the largest difference from the losses of one device that
trains under autocast.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from models import SIZES, TINY, TORCH, batches, make, ours
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

DEVICES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    mp.spawn(worker, (options.device, options.steps), nprocs=DEVICES)


def worker(rank: int, kind: str, steps: int) -> None:
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", rank=rank, world_size=DEVICES)
    sizes = (SIZES if kind == "cuda" else TINY)["gpt"]
    made = batches("gpt", sizes, steps, 0, device)
    share = slice(rank * sizes.batch // DEVICES, (rank + 1) * sizes.batch // DEVICES)
    ways = {
        "one device": (lambda m: m, slice(None), True),
        "DDP": (partial(ddp, rank=rank), share, True),
        "FSDP2, checkpointed": (fsdp, share, False),
    }
    losses = {}
    for layers, parts in (("torch", TORCH), ("tritongen", ours())):
        for way, (spread, own, cast) in ways.items():
            model = spread(make("gpt", parts, sizes, 0).to(device))
            losses[layers, way] = train(
                model, [(x[own], t[own]) for x, t in made], sizes.rate, cast
            )
    if rank == 0:
        print(
            "| layers | way | last loss | largest difference from one device |\n|---|---|---|---|"
        )
        for (layers, way), found in losses.items():
            off = (found - losses[layers, "one device"]).abs().max()
            print(f"| {layers} | {way} | {found[-1]:.4f} | {off:.1e} |", flush=True)
    dist.destroy_process_group()


def ddp(model: nn.Module, rank: int) -> nn.Module:
    on_gpu = next(model.parameters()).is_cuda
    return DistributedDataParallel(model, device_ids=[rank] if on_gpu else None)


def fsdp(model: nn.Module) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def train(model: nn.Module, made: list, rate: float, cast: bool) -> torch.Tensor:
    """The losses of all steps, each the mean over devices."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for x, target in made:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
            loss = model(x, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().float())
    found = torch.stack(losses)
    dist.all_reduce(found)
    return found / DEVICES


if __name__ == "__main__":
    main()
