"""Our side of `step_throughput.py`: each method's task as the library trains it."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import steps
from steps import Case, Collection
from worker import Ready

from dive_jax.methods import (
    autoencoder,
    dive,
    dive_mlp,
    matryoshka_adaptor,
    projections,
    search_adaptor,
    smec,
)
from dive_jax.models.chain import Width
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Data, Relations, drawn, gather
from dive_jax.training.epoch import Schedule, State, Task, adamw, step_of
from dive_jax.training.loop import Start
from dive_jax.types import Triplets


def _options(case: Case, **more: Any) -> AdapterOptions:
    return AdapterOptions(dim=case.dim, heads=case.heads, hidden_dim=case.hidden, **more)


def _projection(case: Case, family: Any) -> Task:
    axes = steps.weight("axes.kernel", (case.full_dim, case.dim)).T
    return projections.task(axes, family, projections.ProjectionSettings())


def _matryoshka(case: Case) -> Task:
    settings = matryoshka_adaptor.MatryoshkaSettings(neighbours=steps.NEAR)
    return matryoshka_adaptor.task(
        case.full_dim, _options(case), settings, steps.JUDGED, supervised=True
    )


def _smec(case: Case) -> Task:
    stages = [Width(case.full_dim, case.full_dim // 2, case.hidden)]
    return smec.task(case.full_dim, stages, smec.SmecSettings(), steps.JUDGED)


TASKS: dict[str, Callable[[Case], Task]] = {
    "dive": lambda case: dive.task(case.full_dim, _options(case)),
    "dive bfloat16": lambda case: dive.task(case.full_dim, _options(case, products="bfloat16")),
    "dive_mlp": lambda case: dive_mlp.task(case.full_dim, _options(case)),
    "dive_batch": lambda case: dive.task(case.full_dim, _options(case, ranking="batch")),
    "dive_batch_linear": lambda case: dive.linear_task(
        case.full_dim, _options(case, ranking="batch")
    ),
    "autoencoder": lambda case: autoencoder.task(case.full_dim, case.dim),
    "search_adaptor": lambda case: search_adaptor.task(
        case.full_dim, _options(case), search_adaptor.SearchSettings(), steps.JUDGED
    ),
    "matryoshka_adaptor": _matryoshka,
    "smec": _smec,
    "linear_shared": lambda case: _projection(case, "shared"),
    "linear_dual": lambda case: _projection(case, "dual"),
}
_JUDGING = ("dive_batch", "search", "matryoshka", "smec", "linear")


def _data(method: str, made: Collection) -> Data:
    relations = None
    if method.startswith(_JUDGING):
        text = np.arange(steps.DOCUMENTS, dtype=np.int32)
        relations = Relations(made.judged, made.gains, made.judged, text)
    near = made.near if method == "matryoshka_adaptor" else None
    hard = made.hard if method.startswith("linear_") else None
    return Data(made.query, made.document, relations, near, hard)


def _filled(tree: Any, prefix: str = "") -> Any:
    """Returns parameters of the same shapes, drawn by name."""
    if isinstance(tree, dict):
        return {
            key: _filled(each, f"{prefix}.{key}" if prefix else str(key))
            for key, each in tree.items()
        }
    return jax.tree.map(lambda leaf: jnp.asarray(steps.weight(prefix, leaf.shape)), tree)


def _start(method: str, task: Task, made: Collection) -> Start:
    start = task.init(jax.random.key(0))
    params = _filled(start.params)
    if method != "smec":
        return Start(params, start.carried)
    # A memory that is full, as in all but the first steps of a run.
    row = np.arange(steps.MEMORY) % steps.DOCUMENTS
    held = jnp.asarray(made.document[row])
    memory = start.carried.memory._replace(
        frozen=held, entered=held, row=jnp.asarray(row, jnp.int32)
    )
    return Start(params, start.carried._replace(memory=memory))


def _draws(start: Start, made: Collection, case: Case) -> list[tuple[np.ndarray, ...]]:
    """Returns what SMEC draws in each step: noise, documents that are met, neighbours."""
    key, found = start.carried.key, []
    for rows in np.split(made.triplets[1:], case.steps, axis=1):
        documents = rows.ravel()
        once = np.zeros(len(documents), bool)
        once[np.unique(documents, return_index=True)[1]] = True
        key, noise = smec.gumbel(key, case.full_dim)
        met = np.arange(len(documents), dtype=np.int32)[None]
        if len(documents) > steps.SMEC_MET:
            key, met = drawn(key, jnp.asarray(once)[None], steps.SMEC_MET)
        every = jnp.ones((met.shape[1], steps.SMEC_NEAR), bool)
        key, which = drawn(key, every, steps.SMEC_DRAWN)
        found.append((noise, met[0], which))
    return jax.device_get(found)


def build(method: str, case: tuple[int, ...]) -> Ready:
    """Compiles some steps in a row; the result is the first losses and the first gradient."""
    shape = Case(*case)
    made, task = steps.collection(shape), TASKS[method](shape)
    start = _start(method, task, made)
    schedule = Schedule((0,), 1, shape.batch, steps.LEARNING_RATE, steps.WEIGHT_DECAY)
    if method.startswith("linear_"):
        schedule = schedule._replace(weight_decay=steps.PROJECTION_DECAY)
    optimiser = (task.optimiser or adamw)(schedule)
    data, triplets = jax.device_put((_data(method, made), Triplets(*made.triplets)))
    rows = jnp.arange(shape.steps * shape.batch, dtype=jnp.int32).reshape(shape.steps, -1)

    def several(data: Data, triplets: Triplets, state: State, rows: Any) -> Any:
        state, logs = jax.lax.scan(step_of(task, optimiser, data, triplets), state, rows)
        return state, logs.mean["loss"]

    def first(data: Data, triplets: Triplets, state: State) -> Any:
        batch = gather(data, triplets, rows[0])
        return jax.grad(
            lambda params: sum(task.loss(params, state.carried, batch).weighted.values())
        )(state.params)

    result = {} if method != "smec" else {"draws": _draws(start, made, shape)}
    state = jax.jit(lambda start: State(*start, optimiser.init(start.params)))(start)
    gradient = jax.device_get(jax.jit(first)(data, triplets, state))
    began = time.perf_counter()
    compiled = jax.jit(several, donate_argnums=2).lower(data, triplets, state, rows).compile()
    taken = time.perf_counter() - began
    held = [state]

    def run() -> Any:
        held[0], losses = compiled(data, triplets, held[0], rows)
        return jax.block_until_ready(losses)

    result |= {"losses": np.asarray(run()), "gradients": steps.flat(gradient)}
    return Ready(run, result, taken)
