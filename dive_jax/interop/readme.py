"""README.md of an export: what it is, how to load it, what to mind."""

import json
from collections.abc import Mapping
from typing import Any

from dive_jax.artefact import Artefact
from dive_jax.interop.layers import sides

_FORMULAS = {
    "prefix": "z = the first dim coordinates of x",
    "linear": "z = weight x{offset}",
    "sided": "z = query_weight x, or document_weight x",
    "residual": "z = {base} + out_weight relu(hidden_weight x + hidden_bias) + out_bias",
    "mlp": "z = x, then for t = 0, 1, ...: z = weight_t z + bias_t, with a relu between two",
    "chain": "z = x, then for t = 0, 1, ...: z = (z + out_weight_t relu(hidden_weight_t z + "
    "hidden_bias_t) + out_bias_t)[kept_t]",
}

_LOADING = {
    "safetensors": """
import json, pathlib, safetensors.numpy
arrays = safetensors.numpy.load_file("adapter.safetensors")
about = json.loads(pathlib.Path("adapter.json").read_text("utf-8"))
""",
    "numpy": """
import numpy
from adapter_numpy import load
compressed = load(".").compress(numpy.load("vectors.npy"), side="{side}")
""",
    "torch": """
import numpy, torch
from adapter_torch import load
compressed = load(".")(torch.from_numpy(numpy.load("vectors.npy")), side="{side}")
""",
    "onnx": """
import numpy, onnxruntime
session = onnxruntime.InferenceSession("{name}.onnx")
[compressed] = session.run(["compressed"], {{"vectors": numpy.load("vectors.npy").astype("f")}})
""",
    "faiss": """
import faiss, numpy
vectors = numpy.load("vectors.npy").astype("f")
faiss.normalize_L2(vectors)
compressed = faiss.read_VectorTransform("{name}.faiss").apply(vectors)
""",
    "sentence-transformers": """
from sentence_transformers import SentenceTransformer
encoder = SentenceTransformer({encoder})
model = SentenceTransformer(modules=[*encoder, *SentenceTransformer(".")])
""",
}

_NOTES = {
    "safetensors": "These are the plain arrays. What is to be computed of a vector x: divide it by "
    "its length; {formula}; {ending}.",
    "numpy": "adapter_numpy.py needs NumPy alone and may be copied into any project (MIT licence). "
    "It checks what it reads, and divides the vectors by their lengths itself.",
    "torch": "adapter_torch.py needs torch and safetensors, and may be copied into any project "
    "(MIT licence). It is source and plain arrays rather than a saved program: nothing in it is a "
    "pickle, it is tied to no version of torch, it can be read, trained further, moved to a GPU "
    "with .to(), and given to torch.compile or torch.export.",
    "onnx": "The batch is a dynamic axis. The graph (operator set 17) divides the vectors by their "
    "lengths itself; the file says in its metadata what it is of.{other}",
    "faiss": "It is a LinearTransform.{other}",
    "sentence-transformers": "model.encode(texts) then gives the compressed vectors, and "
    'model.save_pretrained("folder") keeps encoder and adapter together. The modules are the '
    "library's own (Normalize and Dense{router}), so trust_remote_code is not needed. The encoder "
    "must pool and put prefixes as it did for the vectors that the adapter was fitted on.",
}

_NEEDS = {
    "safetensors": "pip install safetensors numpy",
    "numpy": "pip install numpy",
    "torch": "pip install torch safetensors numpy",
    "onnx": "pip install onnxruntime numpy",
    "faiss": "pip install faiss-cpu numpy",
    "sentence-transformers": "pip install 'sentence-transformers>={least}'",
}

_UNIT = "faiss.normalize_L2(compressed)\n"

_INDEX = """ An index that takes vectors of the full width, documents and queries:

```python
import faiss
index = faiss.IndexPreTransform(faiss.IndexFlatIP({dim}))
{unit}index.prepend_transform(faiss.read_VectorTransform("adapter.faiss"))
index.prepend_transform(faiss.NormalizationTransform({full_dim}))
```"""


def _formula(artefact: Artefact) -> str:
    return _FORMULAS[artefact.form].format(
        offset=" + offset" if "offset" in artefact.arrays else "",
        base="base x" if "base" in artefact.arrays else "the first dim coordinates of x",
    )


def _index(artefact: Artefact) -> str:
    """Returns how to put a transform before an index; nothing where the sides differ."""
    if artefact.form == "sided":
        return ""
    dim, full_dim = artefact.meta["dim"], artefact.meta["full_dim"]
    unit = f"index.prepend_transform(faiss.NormalizationTransform({dim}))\n"
    return _INDEX.format(
        dim=dim, full_dim=full_dim, unit=unit if artefact.meta["normalized"] else ""
    )


def _notes(artefact: Artefact, target: str) -> str:
    names = list(sides(artefact))
    sided = artefact.form == "sided"
    text = _NOTES[target].format(
        formula=_formula(artefact),
        ending="divide z by its length" if artefact.meta["normalized"] else "z is the result",
        router=", with a Router over the sides" if sided else "",
        other=f" There is one for each side: {', '.join(names)}." if sided else "",
    )
    if target == "sentence-transformers" and sided:
        text += " Use model.encode_query and model.encode_document; plain encode refuses to guess."
    return text + (_index(artefact) if target == "faiss" else "")


def readme(artefact: Artefact, target: str, versions: Mapping[str, Any]) -> str:
    """Returns the text of an export's README.md.

    Args:
      artefact: What was exported.
      target: For which runtime.
      versions: Of the packages that wrote it.
    """
    meta = artefact.meta
    name, side = next(iter(sides(artefact).items()))
    loading = _LOADING[target].format(
        name=name,
        side=side if meta["sides"] == "both" else meta["sides"],
        encoder=json.dumps(meta["encoder"] or "the-encoder"),
    )
    if target == "faiss" and meta["normalized"]:
        loading += _UNIT
    facts = {
        "method": f"{meta['method']} (form {artefact.form})",
        "widths": f"{meta['full_dim']} to {meta['dim']}",
        "sides": _sides(artefact),
        "encoder": meta["encoder"] or "unknown",
        "fingerprint of the encoder": meta["fingerprint"] or "unknown",
        "SHA-256 of the adapter": meta["sha256"],
        "results": "of length 1" if meta["normalized"] else "not normalised",
        "written by": ", ".join(f"{key} {value}" for key, value in versions.items()),
    }
    lines = [f"# {_line(meta['method'])}, {facts['widths']} wide, for {target}", ""]
    lines += ["|   |   |", "|---|---|"]
    lines += [f"| {key} | {_line(value)} |" for key, value in facts.items()]
    lines += [
        "",
        f"To load it, in this folder (`{_NEEDS[target].format(least=_least(artefact))}`):",
    ]
    lines += ["", f"```python{loading}```", "", _notes(artefact, target)]
    lines += ["", "Vectors of another encoder, pooling or prefix give nonsense of the right width."]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """Returns a name that may come from a stranger as one line that a table can hold."""
    return " ".join(text.split()).replace("|", "/").replace("`", "'").replace("<", "(")


def _least(artefact: Artefact) -> str:
    """Returns the version of sentence-transformers that the modules need."""
    return "5" if artefact.form == "sided" else "3.3"


def _sides(artefact: Artefact) -> str:
    meta = artefact.meta
    if artefact.form == "sided":
        return f"a map of its own for each: {', '.join(sides(artefact))}"
    return "queries and documents alike" if meta["sides"] == "both" else f"{meta['sides']} only"
