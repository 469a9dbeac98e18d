"""PyTorch sides of `loss_throughput.py`: head-wise NT-Xent, eager and compiled."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from worker import Ready

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def headwise_ntxent(heads: torch.Tensor, temperature: float) -> torch.Tensor:
    """The loss of each head, [batch, heads]: the positives from a small product a sample."""
    batch, count, dim = heads.shape
    flat = heads.reshape(batch * count, dim)
    logits = flat @ flat.T / temperature
    logits.fill_diagonal_(-torch.inf)
    others = torch.logsumexp(logits, dim=1).reshape(batch, count)
    own = torch.bmm(heads, heads.transpose(1, 2)) / temperature
    attracted = own.sum(dim=2) - own.diagonal(dim1=1, dim2=2)
    return others - attracted / (count - 1)


def value_and_gradient(
    loss: Callable[[torch.Tensor], torch.Tensor], heads: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the mean loss and its gradient."""
    value = loss(heads)
    (gradient,) = torch.autograd.grad(value, heads)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return value, gradient


def build(heads: np.ndarray, temperature: float, compiled: bool) -> Ready:
    """Value and gradient of the mean over all heads."""
    there = torch.tensor(heads, device=DEVICE, requires_grad=True)

    def mean(z: torch.Tensor) -> torch.Tensor:
        return headwise_ntxent(z, temperature).mean()

    loss = torch.compile(mean, dynamic=False) if compiled else mean

    def run() -> Any:
        return value_and_gradient(loss, there)

    began = time.perf_counter()
    value, gradient = run()
    taken = time.perf_counter() - began if compiled else 0.0
    return Ready(run, (value.item(), gradient.cpu().numpy()), taken)
