"""DIVE in PyTorch as a good user would write it: modules, losses and what a step is given."""

from typing import Any, NamedTuple

import numpy as np
import steps
import torch
from torch import Tensor, nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Batch(NamedTuple):
    """Vectors of one step and the rows they come from."""

    query: Tensor
    positive: Tensor
    negative: Tensor
    query_row: Tensor
    document_row: Tensor

    def stacked(self) -> Tensor:
        """Queries, positives and negatives below each other."""
        return torch.cat([self.query, self.positive, self.negative])


class Store(NamedTuple):
    """The collection as tensors on the device."""

    query: Tensor
    document: Tensor
    judged: Tensor
    gains: Tensor
    near: Tensor
    hard: Tensor

    def batch(self, triplets: Tensor) -> Batch:
        """Looks up the triplets [3, batch] of one step."""
        query, positive, negative = triplets
        return Batch(
            self.query[query],
            self.document[positive],
            self.document[negative],
            query,
            torch.cat([positive, negative]),
        )


def store(made: steps.Collection) -> Store:
    """Sends a collection to the device."""
    arrays = (made.query, made.document, made.judged, made.gains, made.near, made.hard)
    return Store(
        *(
            torch.as_tensor(each if each.dtype == np.float32 else each.astype(np.int64)).to(DEVICE)
            for each in arrays
        )
    )


class Residual(nn.Module):
    """The vector, or its first `width` columns, plus what two layers add."""

    def __init__(self, full_dim: int, hidden: int, width: int):
        super().__init__()
        self.hidden = nn.Linear(full_dim, hidden)
        self.out = nn.Linear(hidden, width)

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns the adapted rows, not normalised."""
        return vectors[:, : self.out.out_features] + self.out(torch.relu(self.hidden(vectors)))


class Linear(nn.Module):
    """One matrix, without a bias."""

    def __init__(self, full_dim: int, width: int):
        super().__init__()
        self.map = nn.Linear(full_dim, width, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns the mapped rows."""
        return self.map(vectors)


class Network(nn.Module):
    """The first version's three layers, batch normalisation after the first."""

    def __init__(self, full_dim: int, width: int):
        super().__init__()
        self.first = nn.Linear(full_dim, full_dim // 2, bias=False)  # the norm's shift serves
        self.norm = nn.BatchNorm1d(full_dim // 2)
        self.second = nn.Linear(full_dim // 2, full_dim // 4)
        self.out = nn.Linear(full_dim // 4, width)

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns the adapted rows, not normalised."""
        hidden = torch.relu(self.norm(self.first(vectors)))
        return self.out(torch.relu(self.second(hidden)))


def contrast(heads: Tensor) -> Tensor:
    """Returns the mean head-wise NT-Xent of heads [roles, batch, heads, dim]."""
    roles, batch, count, dim = heads.shape
    flat = heads.reshape(roles, batch * count, dim)
    logits = torch.bmm(flat, flat.transpose(1, 2)) / steps.TEMPERATURE
    itself = torch.eye(batch * count, dtype=torch.bool, device=heads.device)
    others = torch.logsumexp(logits.masked_fill(itself, -torch.inf), dim=2)
    each = heads.reshape(roles * batch, count, dim)
    own = torch.bmm(each, each.transpose(1, 2)) / steps.TEMPERATURE
    attracted = own.sum(dim=2) - own.diagonal(dim1=1, dim2=2)
    return others.mean() - attracted.mean() / (count - 1)


def gram(student: Tensor, teacher: Tensor) -> Tensor:
    """Returns the mean smooth L1 distance of all pairs' inner products."""
    rows = len(student)
    losses = functional.smooth_l1_loss(student @ student.T, teacher @ teacher.T, reduction="none")
    return (losses.sum() - losses.diagonal().sum()) / (rows * (rows - 1))


def excluded(batch: Batch, data: Store) -> Tensor:
    """Marks documents that are relevant for a query, [batch, 2 * batch]."""
    judged = data.judged[batch.query_row]
    return (batch.document_row[None, :, None] == judged[:, None, :]).any(dim=2)


def first_seen(rows: Tensor) -> Tensor:
    """Marks the first place of every row."""
    return ~(rows[:, None] == rows[None, :]).triu(1).any(dim=0)


def dive_loss(
    outputs: Tensor, batch: Batch, data: Store, case: steps.Case, *, ranking: str = "triplet",
    geometry: bool = True,
) -> Tensor:  # fmt: skip
    """Returns DIVE's loss of one batch.

    Args:
      outputs: Adapted rows, at least dim * heads columns.
      batch: What went in.
      data: Judgments, for `ranking="batch"`.
      case: Shape.
      ranking: "triplet", or "batch": against all documents of the batch.
      geometry: Whether the Gram distillation is part of it.
    """
    heads = outputs[:, : case.width].unflatten(1, (case.heads, case.dim))
    heads = functional.normalize(heads.float(), dim=2)
    head = heads[:, 0]
    query, positive, negative = head.chunk(3)
    to_positive = (query * positive).sum(dim=1)
    if ranking == "triplet":
        to_negative = (query * negative).sum(dim=1)
        rank = torch.relu(steps.MARGIN - (to_positive - to_negative)).mean()
    else:
        allowed = first_seen(batch.document_row)[None, :] & ~excluded(batch, data)
        scores = query @ head[len(query) :].T / steps.BATCH_TEMPERATURE
        soft = torch.logsumexp(scores.masked_fill(~allowed, -torch.inf), dim=1)
        rank = torch.relu(steps.BATCH_MARGIN + steps.BATCH_TEMPERATURE * soft - to_positive).mean()
    loss = rank + steps.VIEW * contrast(heads.unflatten(0, (3, -1)))
    if geometry:
        loss = loss + steps.GEOMETRY * gram(head, batch.stacked())
    return loss


def named(module: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters under our names; those of kernels are [out, in] here."""
    return {
        name.replace("first.weight", "first")
        .replace("norm.weight", "norm.scale")
        .replace("map.weight", "kernel")
        .replace("weight", "kernel"): each
        for name, each in module.named_parameters()
    }


def fill(module: nn.Module, held: int | None = None) -> nn.Module:
    """Draws every parameter by its name, as our side does.

    Args:
      module: What is filled.
      held: Output columns that our side holds, where the module has more.
    """
    for name, each in named(module).items():
        shape = tuple(each.shape) if each.ndim < 2 else tuple(each.shape)[::-1]
        if held is not None and name.startswith("out.") and shape[-1] > held:
            rest = steps.weight(f"rest.{name}", (*shape[:-1], shape[-1] - held))
            drawn = np.concatenate([steps.weight(name, (*shape[:-1], held)), rest], axis=-1)
        else:
            drawn = steps.weight(name, shape)
        with torch.no_grad():
            each.copy_(torch.as_tensor(np.ascontiguousarray(drawn.T)))
    return module.to(DEVICE)


def gradients(module: nn.Module, held: int | None = None) -> dict[str, Any]:
    """Returns the gradients under our names, kernels [in, out], of the columns our side holds."""
    found = {}
    for name, each in named(module).items():
        assert each.grad is not None
        gradient = each.grad.detach().float().cpu().numpy().T
        found[name] = gradient[..., :held] if name.startswith("out.") and held else gradient
    return {name: np.ascontiguousarray(each) for name, each in found.items()}
