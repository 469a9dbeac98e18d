"""The PyTorch side of `training_run.py`: a plain loop over seeds, epochs and batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import steps
import torch
import training_data
from torch import Tensor, nn
from torch_dive import DEVICE, Batch, Residual, dive_loss
from worker import Ready

from dive_jax.options import TrainOptions


def _filled(model: Residual, start: dict[str, Any], width: int) -> None:
    """Starts from the same weights; columns that our side does not hold start at 0 as well."""
    hidden, out = start["hidden"], start["out"]
    with torch.no_grad():
        model.hidden.weight.copy_(torch.as_tensor(np.array(hidden["kernel"].T)))
        model.hidden.bias.copy_(torch.as_tensor(np.array(hidden["bias"])))
        model.out.weight.zero_()
        model.out.bias.zero_()
        model.out.weight[:width].copy_(torch.as_tensor(np.array(out["kernel"].T)))


def _epoch(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss_of: Callable[..., Tensor],
    triplets: Tensor,
    batch_size: int,
) -> Tensor:
    losses = []
    for rows in triplets.split(batch_size, dim=1):
        loss = loss_of(model, rows)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def _adamw(model: nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        model.parameters(),
        lr=options.learning_rate,
        weight_decay=options.weight_decay,
        fused=True,
    )


def build(starts: list[Any], all_columns: bool, compiled: bool, **arguments: Any) -> Ready:
    """Makes the run from frozen vectors to the table; the result is the table of a first one."""
    run = training_data.prepare(**arguments)
    options = run.options
    query, document = (torch.as_tensor(side).to(DEVICE) for side in training_data.units(run))
    full_dim = document.shape[1]
    case = steps.Case(
        full_dim, options.hidden(full_dim), options.dim, options.heads, options.batch_size, 0
    )
    triplets = np.stack(run.triplets).astype(np.int64)
    scored = np.array([row for row, each in enumerate(run.ids.query) if each in run.scored])

    def loss_of(model: nn.Module, rows: Tensor) -> Tensor:
        vectors = Batch(query[rows[0]], document[rows[1]], document[rows[2]], rows[0], rows[1])
        return dive_loss(model(vectors.stacked()), vectors, None, case)

    chosen = torch.compile(loss_of, dynamic=False) if compiled else loss_of

    def train(seed: int, start: dict[str, Any]) -> tuple[Residual, list[Tensor]]:
        model = Residual(full_dim, case.hidden, full_dim if all_columns else case.width).to(DEVICE)
        _filled(model, start, case.width)
        optimiser = _adamw(model, options)
        losses = []
        for epoch in range(options.epochs):
            order = training_data.shuffled(seed, epoch, triplets.shape[1])
            rows = torch.as_tensor(triplets[:, order]).to(DEVICE)
            losses.append(_epoch(model, optimiser, chosen, rows, options.batch_size))
        return model, losses

    @torch.inference_mode()
    def ndcg(model: Residual) -> float:
        small = [
            nn.functional.normalize(model(side)[:, : case.dim], dim=1)
            for side in (query[scored], document)
        ]
        found = (small[0] @ small[1].T).topk(11, dim=1).indices.cpu().numpy()
        return training_data.ndcg(run, scored, found)

    logged: dict[int, list[Tensor]] = {}

    def table() -> list[float]:
        found = []
        for seed, start in zip(options.seeds, starts, strict=True):
            model, logged[seed] = train(seed, start)
            found.append(ndcg(model))
        return found

    result = {"ndcg@10": table()}
    result["loss"] = torch.tensor([[e.item() for e in each] for each in logged.values()]).T.numpy()
    return Ready(table, result, told={"ndcg@10": result["ndcg@10"]})
