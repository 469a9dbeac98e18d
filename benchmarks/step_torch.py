"""The PyTorch side of `step_throughput.py`: a plain training loop, eager or compiled."""

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import steps
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_dive import (
    DEVICE,
    Batch,
    Linear,
    Network,
    Residual,
    Store,
    dive_loss,
    fill,
    gradients,
    store,
)
from torch_methods import (
    Memory,
    Search,
    Selecting,
    Sides,
    matryoshka_loss,
    projection_loss,
    search_loss,
    smec_loss,
)
from worker import Ready

Loss = Callable[[Any, Batch, Store, steps.Case], Tensor]


class Autoencoder(nn.Module):
    """Two layers to the code, two back."""

    def __init__(self, full_dim: int, dim: int):
        super().__init__()
        hidden = full_dim // 2
        self.encoder_hidden, self.encoder_out = nn.Linear(full_dim, hidden), nn.Linear(hidden, dim)
        self.decoder_hidden, self.decoder_out = nn.Linear(dim, hidden), nn.Linear(hidden, full_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns the reconstruction."""
        code = self.encoder_out(torch.relu(self.encoder_hidden(vectors)))
        return self.decoder_out(torch.relu(self.decoder_hidden(code)))


def _dive(model: Any, batch: Batch, data: Store, case: steps.Case, **more: Any) -> Tensor:
    return dive_loss(model(batch.stacked()), batch, data, case, **more)


def _bfloat16(model: Any, batch: Batch, data: Store, case: steps.Case) -> Tensor:
    with torch.autocast(DEVICE, torch.bfloat16):
        return _dive(model, batch, data, case)


def _rebuilding(model: Any, batch: Batch, data: Store, case: steps.Case) -> Tensor:
    return functional.mse_loss(model(batch.positive), batch.positive)


def _projections(model: Any, batch: Batch, data: Store, case: steps.Case) -> Tensor:
    return projection_loss(model, batch, data)


_batch = functools.partial(_dive, ranking="batch")
_no_geometry = functools.partial(_dive, geometry=False)

METHODS: dict[str, tuple[Callable[[steps.Case], nn.Module], Loss | None]] = {
    "dive": (lambda c: Residual(c.full_dim, c.hidden, c.width), _dive),
    "dive, all columns": (lambda c: Residual(c.full_dim, c.hidden, c.full_dim), _dive),
    "dive bfloat16": (lambda c: Residual(c.full_dim, c.hidden, c.width), _bfloat16),
    "dive_mlp": (lambda c: Network(c.full_dim, c.width), _no_geometry),
    "dive_batch": (lambda c: Residual(c.full_dim, c.hidden, c.width), _batch),
    "dive_batch_linear": (lambda c: Linear(c.full_dim, c.width), _batch),
    "autoencoder": (lambda c: Autoencoder(c.full_dim, c.dim), _rebuilding),
    "search_adaptor": (lambda c: Search(c.full_dim, c.hidden), search_loss),
    "matryoshka_adaptor": (lambda c: Residual(c.full_dim, c.hidden, c.full_dim), matryoshka_loss),
    "smec": (lambda c: Selecting(c.full_dim, c.hidden), None),
    "linear_shared": (lambda c: Sides(c.full_dim, c.dim, True), _projections),
    "linear_dual": (lambda c: Sides(c.full_dim, c.dim, False), _projections),
}


def _optimiser(method: str, model: nn.Module) -> torch.optim.Optimizer:
    if method == "smec":
        groups = [
            {"params": model.block.parameters(), "lr": steps.SMEC_RATE},
            {"params": [model.scores], "lr": steps.SELECTION_RATE, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, weight_decay=steps.WEIGHT_DECAY, fused=True)
    decay = steps.PROJECTION_DECAY if method.startswith("linear_") else steps.WEIGHT_DECAY
    return torch.optim.AdamW(
        model.parameters(), lr=steps.LEARNING_RATE, weight_decay=decay, fused=True
    )


def build(method: str, case: tuple[int, ...], compiled: bool, draws: Any = ()) -> Ready:
    """Makes a loop over some steps; the result is the first losses and the first gradient."""
    shape = steps.Case(*case)
    made = steps.collection(shape)
    data, (make, loss) = store(made), METHODS[method]
    held = shape.width if method == "dive, all columns" else None
    model = fill(make(shape), held).train()
    optimiser = _optimiser(method, model)
    triplets = torch.as_tensor(made.triplets.astype(np.int64)).to(DEVICE)
    each_step = triplets.reshape(3, shape.steps, shape.batch).permute(1, 0, 2).contiguous()
    memory = Memory(data, draws) if method == "smec" else None

    def plain(rows: Tensor) -> Tensor:
        return loss(model, data.batch(rows), data, shape)

    def recalling(rows: Tensor, held: tuple[Tensor, ...], drawn: Any) -> Tensor:
        return smec_loss(model, data.batch(rows), data, held, drawn)

    chosen: Callable[..., Tensor] = plain if memory is None else recalling
    loss_of = torch.compile(chosen, dynamic=False) if compiled else chosen

    def forward(number: int) -> Tensor:
        if memory is None:
            return loss_of(each_step[number])
        store_now = (memory.frozen, memory.entered, memory.row)
        return loss_of(each_step[number], store_now, memory.draws[number])

    def step(number: int) -> Tensor:
        value = forward(number)
        value.backward()
        if method.startswith("linear_"):
            nn.utils.clip_grad_norm_(model.parameters(), steps.CLIP, foreach=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if memory is not None:
            memory.push(data.batch(each_step[number]))
        return value.detach()

    def run() -> Tensor:
        losses = torch.stack([step(number) for number in range(shape.steps)])
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return losses

    began = time.perf_counter()
    forward(0).backward()
    taken = time.perf_counter() - began if compiled else 0.0
    result = {"gradients": gradients(model, held)}
    optimiser.zero_grad(set_to_none=True)
    result["losses"] = run().cpu().numpy()
    return Ready(run, result, taken)
