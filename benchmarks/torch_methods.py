"""The other trained methods in PyTorch: Search-Adaptor, Matryoshka-Adaptor, SMEC, projections."""

from typing import Any

import steps
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_dive import DEVICE, Batch, Residual, Store, excluded, first_seen


class Predictor(nn.Module):
    """Guesses a query from a document."""

    def __init__(self, full_dim: int, hidden: int):
        super().__init__()
        self.hidden = nn.Linear(full_dim, hidden)
        self.out = nn.Linear(hidden, full_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns one query a document."""
        return self.out(torch.relu(self.hidden(vectors)))


class Search(nn.Module):
    """Search-Adaptor's adapter and predictor."""

    def __init__(self, full_dim: int, hidden: int):
        super().__init__()
        self.adapter = Residual(full_dim, hidden, full_dim)
        self.predictor = Predictor(full_dim, hidden)


class Selecting(nn.Module):
    """A stage of SMEC: a residual block, and a score a coordinate."""

    def __init__(self, full_dim: int, hidden: int):
        super().__init__()
        self.block = Residual(full_dim, hidden, full_dim)
        self.scores = nn.Parameter(torch.zeros(full_dim))


class Sides(nn.Module):
    """One linear map for both sides, or one each."""

    def __init__(self, full_dim: int, dim: int, shared: bool):
        super().__init__()
        names = ("both",) if shared else ("query", "document")
        for name in names:
            self.register_parameter(name, nn.Parameter(torch.zeros(dim, full_dim)))

    def side(self, name: str) -> Tensor:
        """Returns a side's weight [dim, full_dim]."""
        return getattr(self, "both", None) if hasattr(self, "both") else getattr(self, name)


class Judged:
    """Judgments of a batch: each query and document once, and its most relevant documents."""

    def __init__(self, batch: Batch, data: Store):
        judged, gains = data.judged[batch.query_row], data.gains[batch.query_row]
        same = batch.document_row[None, :, None] == judged[:, None, :]
        gains = torch.where(same, gains[:, None, :], 0.0).amax(dim=2)
        self.query, self.document = first_seen(batch.query_row), first_seen(batch.document_row)
        valid = self.query[:, None] & self.document[None, :]
        self.gains = gains.masked_fill(~valid, -1.0)
        highest, self.places = self.gains.topk(steps.JUDGED, dim=1)
        self.highest = highest.clamp(min=0)


def mean_over(values: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of the rows that count."""
    return torch.where(mask, values, 0.0).sum() / mask.sum()


def rank_loss(similarity: Tensor, known: Judged) -> Tensor:
    """Returns the mean over the triples of query, higher and lower document."""
    leads = known.highest[:, :, None] - known.gains[:, None, :]
    wanted = (leads > 0) & (known.gains >= 0)[:, None, :]
    above = similarity.gather(1, known.places)
    losses = leads * functional.softplus(similarity[:, None, :] - above[:, :, None])
    return torch.where(wanted, losses, 0.0).sum() / wanted.sum()


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Returns all cosines between two sets of rows."""
    return functional.normalize(left, dim=1) @ functional.normalize(right, dim=1).T


def search_loss(model: Search, batch: Batch, data: Store, case: steps.Case) -> Tensor:
    """Returns Search-Adaptor's three terms."""
    known = Judged(batch, data)
    frozen = batch.stacked()
    both = model.adapter(frozen)
    size = len(batch.query)
    query, document = both[:size], both[size:]
    rank = rank_loss(cosines(query[:, : case.dim], document[:, : case.dim]), known)
    moved = (both - frozen).abs().sum(dim=1)
    recovery = mean_over(moved[:size], known.query) + mean_over(moved[size:], known.document)
    guesses = model.predictor(document)[known.places]
    errors = (query[:, None, :] - guesses).abs().sum(dim=2)
    prediction = (known.highest * errors).sum() / known.highest.sum()
    return rank + steps.RECOVERY * recovery + steps.PREDICTION * prediction


def matryoshka_loss(model: Residual, batch: Batch, data: Store, case: steps.Case) -> Tensor:
    """Returns Matryoshka-Adaptor's supervised terms, over the nested widths."""
    known = Judged(batch, data)
    widths = sorted({case.dim} | {2**n for n in range(5, 13) if 2**n <= case.full_dim})
    size, once = len(batch.query), known.document
    frozen = batch.stacked()
    adapted = model(frozen)
    query, document, frozen = adapted[:size], adapted[size:], frozen[size:]
    vectors = data.document[data.near[batch.document_row]]
    wanted_near = (frozen[:, None, :] * vectors).sum(dim=2)
    last = widths[-1]
    flat = vectors.reshape(-1, case.full_dim)
    out = functional.linear(
        torch.relu(model.hidden(flat)), model.out.weight[:last], model.out.bias[:last]
    )
    near = (flat[:, :last] + out).reshape(len(frozen), -1, last)
    wanted = frozen @ frozen.T
    pairs = once[:, None] & once[None, :]
    pairs = pairs & ~torch.eye(len(once), dtype=torch.bool, device=once.device)
    loss = mean_over((document - frozen).abs().sum(dim=1), once)
    for m in widths:
        own = functional.normalize(document[:, :m], dim=1)
        gaps = torch.where(pairs, (own @ own.T - wanted).abs(), 0.0)
        loss = loss + gaps.sum() / (once.sum() * (once.sum() - 1))
        to_near = (own[:, None, :] * functional.normalize(near[:, :, :m], dim=2)).sum(dim=2)
        loss = loss + mean_over((to_near - wanted_near).abs().mean(dim=1), once)
        loss = loss + rank_loss(functional.normalize(query[:, :m], dim=1) @ own.T, known)
    return loss


class Memory:
    """SMEC's ring of earlier documents, full at the start, and what each step draws."""

    def __init__(self, data: Store, draws: Any):
        self.row = torch.arange(steps.MEMORY, device=DEVICE) % steps.DOCUMENTS
        self.frozen = data.document[self.row]
        self.entered = self.frozen.clone()
        self.following = 0
        self.draws = [
            tuple(
                torch.as_tensor(each if each.dtype.kind == "f" else each.astype("int64")).to(DEVICE)
                for each in one
            )
            for one in draws
        ]

    @torch.no_grad()
    def push(self, batch: Batch) -> None:
        """Puts each document of a batch in, in the place of the oldest."""
        once = first_seen(batch.document_row).nonzero()[:, 0]
        places = (self.following + torch.arange(len(once), device=DEVICE)) % steps.MEMORY
        frozen = torch.cat([batch.positive, batch.negative])[once]
        self.frozen[places] = frozen
        self.entered[places] = frozen
        self.row[places] = batch.document_row[once]
        self.following = (self.following + len(once)) % steps.MEMORY


def smec_loss(
    model: Selecting, batch: Batch, data: Store, memory: tuple[Tensor, ...], draws: Any
) -> Tensor:
    """Returns the terms of SMEC's first stage, at its width and at half of it."""
    known = Judged(batch, data)
    held, entered, rows = memory
    noise, met, which = draws
    size = len(batch.query)
    adapted = model.block(batch.stacked())
    query, document = adapted[:size], adapted[size:]
    logits = model.scores + noise
    shares = logits.softmax(dim=0)
    kept = torch.zeros_like(shares).scatter(0, logits.topk(len(logits) // 2).indices, 1.0)
    kept = kept + shares - shares.detach()
    own = batch.document_row[met]
    frozen = torch.cat([batch.positive, batch.negative])[met]
    similar = (frozen @ held.T).masked_fill(rows[None, :] == own[:, None], -torch.inf)
    best, places = similar.topk(steps.SMEC_NEAR, dim=1)
    best, places = best.gather(1, which), places.gather(1, which)
    recalled = model.block(entered[places].flatten(0, 1)).reshape(*places.shape, -1)
    counted = known.document[met]
    loss = model.scores.sum() * 0.0
    for mask in (None, kept):
        mine, theirs, near = (
            each if mask is None else each * mask for each in (query, document, recalled)
        )
        loss = loss + rank_loss(cosines(mine, theirs), known)
        left = functional.normalize(theirs[met], dim=1)[:, None, :]
        gaps = ((left * functional.normalize(near, dim=2)).sum(dim=2) - best).abs()
        loss = loss + mean_over(gaps.mean(dim=1), counted)
    return loss


def projection_loss(model: Sides, batch: Batch, data: Store) -> Tensor:
    """Returns InfoNCE over the batch's other positives and hard negatives."""
    size = len(batch.query)
    query = functional.linear(batch.query, model.side("query"))
    document = functional.linear(batch.positive, model.side("document"))
    hard = data.document[data.hard[batch.query_row]]
    near = functional.linear(hard, model.side("document"))
    rows = batch.document_row[:size]
    allowed = first_seen(rows)[None, :] & ~excluded(batch, data)[:, :size]
    positive = (query * document).sum(dim=1, keepdim=True)
    within = (query @ document.T).masked_fill(~allowed, -torch.inf)
    hardest = torch.einsum("bd,bhd->bh", query, near)
    logits = torch.cat([positive, within, hardest], dim=1) / steps.PROJECTION_TEMPERATURE
    target = torch.zeros(size, dtype=torch.int64, device=DEVICE)
    return functional.cross_entropy(logits, target)
