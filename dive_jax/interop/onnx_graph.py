"""An adapter as an ONNX graph: "vectors" [batch, full_dim] in, "compressed" [batch, dim] out.

The graph is traced: `dive_jax.forms.mapped`, which computes for NumPy and JAX, is given stand-ins
that write down what is done to them. So the map is written once for all three.
"""

# pyright: reportMissingImports=false

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dive_jax import forms
from dive_jax.artefact import Artefact
from dive_jax.interop.layers import sides
from dive_jax.types import InputError

_OPSET, _IR_VERSION = 17, 8  # of 2022: what most runtimes read
_LIMIT = 2**31 - 2**20  # bytes; a file of this format cannot be larger
_TINY, _HUGE = np.float32(1e-12), np.float32(3e38)


class _Graph:
    """Nodes and constants, in the order in which they come up."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, values: Any) -> str:
        """Returns the name of an array that the graph carries."""
        if name not in self.constants:
            self.constants[name] = self._onnx.numpy_helper.from_array(np.asarray(values), name)
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Adds one operation; returns the name of its result."""
        output = output or f"{operator.lower()}_{len(self.nodes)}"
        made = self._onnx.helper.make_node(operator, inputs, [output], output, **attributes)
        self.nodes.append(made)
        return output


@dataclass(frozen=True)
class _Array:
    """Stands for a weight, a bias or coordinates; transposed only as a product wants it."""

    name: str
    values: np.ndarray

    @property
    def T(self) -> "_Array":  # noqa: N802
        return self

    def __getitem__(self, key: Any) -> "_Array":
        return self  # [None, :]: a bias is added to every row as it is


@dataclass(frozen=True)
class _Rows:
    """Stands for vectors, a row each."""

    graph: _Graph
    name: str

    def _then(self, operator: str, *inputs: str, **attributes: Any) -> "_Rows":
        return _Rows(self.graph, self.graph.node(operator, self.name, *inputs, **attributes))

    def times(self, weight: _Array) -> "_Rows":
        """Returns the rows times a weight [out, in], transposed."""
        return self._then("Gemm", self.graph.constant(weight.name, weight.values), transB=1)

    def __add__(self, other: "_Rows | _Array") -> "_Rows":
        if isinstance(other, _Array):
            return self._then("Add", self.graph.constant(other.name, other.values))
        return self._then("Add", other.name)

    def __getitem__(self, key: Any) -> "_Rows":
        _, columns = key
        if isinstance(columns, _Array):
            values = columns.values.astype(np.int64)
            return self._then("Gather", self.graph.constant(columns.name, values), axis=1)
        edges = {"first": 0, "end": columns.stop, "axis": 1}
        names = [self.graph.constant(name, np.array([at])) for name, at in edges.items()]
        return self._then("Slice", *names)

    def clip(self, min: int) -> "_Rows":
        return self._then("Relu")

    def unit(self, output: str = "") -> "_Rows":
        """Returns rows of length 1, and zeros where the length is next to 0."""
        length = self._then("ReduceL2", axes=[1], keepdims=1).name
        tiny, huge = self.graph.constant("tiny", _TINY), self.graph.constant("huge", _HUGE)
        small = self.graph.node("Less", length, tiny)
        divisor = self.graph.node("Where", small, huge, length)
        return self._then("Div", divisor, output=output)

    def scaled(self) -> "_Rows":
        """Returns rows whose greatest magnitude is 1, so that no square overflows or vanishes."""
        size = self._then("Abs").name
        peak = self.graph.node("ReduceMax", size, axes=[1], keepdims=1)
        zero, one = (self.graph.constant(f"number_{each}", np.float32(each)) for each in (0, 1))
        positive = self.graph.node("Greater", peak, zero)
        return self._then("Div", self.graph.node("Where", positive, peak, one))


def _trace(artefact: Artefact, side: str, graph: _Graph) -> None:
    arrays: Mapping[str, _Array] = {
        name: _Array(name, np.asarray(each, np.float32) if each.dtype.kind == "f" else each)
        for name, each in artefact.arrays.items()
    }
    rows = _Rows(graph, "vectors").scaled().unit()
    out = forms.mapped(
        artefact.form, arrays, rows, artefact.meta["dim"], dot=_Rows.times, side=side
    )
    if artefact.meta["normalized"]:
        out.unit("compressed")
    else:
        graph.node("Identity", out.name, output="compressed")


def _model(onnx: Any, artefact: Artefact, side: str, told: Mapping[str, str]) -> bytes:
    graph = _Graph(onnx)
    _trace(artefact, side, graph)
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
        for name, width in (
            ("vectors", artefact.meta["full_dim"]),
            ("compressed", artefact.meta["dim"]),
        )
    ]
    body = onnx.helper.make_graph(
        graph.nodes, "adapter", ends[:1], ends[1:], list(graph.constants.values())
    )
    model = onnx.helper.make_model(
        body,
        producer_name="dive_jax",
        ir_version=_IR_VERSION,
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
    )
    onnx.helper.set_model_props(model, dict(told))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def files(artefact: Artefact) -> dict[str, bytes]:
    """Returns the files of an adapter for ONNX: one, or one a side.

    Args:
      artefact: A sound artefact.

    Raises:
      InputError: If its arrays are too large for the format.
    """
    import onnx
    import onnx.helper
    import onnx.numpy_helper

    if sum(each.size * 4 for each in artefact.arrays.values()) > _LIMIT:
        raise InputError("--to=onnx: the adapter is larger than 2 GiB; use --to=safetensors")
    keys = ("method", "form", "encoder", "fingerprint", "sides", "sha256")
    return {
        f"{name}.onnx": _model(
            onnx,
            artefact,
            side,
            {key: str(artefact.meta.get(key, "")) for key in keys} | {"map": name},
        )
        for name, side in sides(artefact).items()
    }
