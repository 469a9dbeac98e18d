"""An adapter as modules of sentence-transformers' own, Normalize and Dense: no code to trust.

Their files are written here, so torch is not needed for it. `SentenceTransformer(folder)` loads
them; a sided adapter becomes a Router, which asks whose text it is.
"""

from dive_jax import safetensors
from dive_jax.artefact import Artefact
from dive_jax.files import to_json
from dive_jax.interop.layers import Layer, layers, sides

_KINDS = "sentence_transformers.models."
_RELU, _PLAIN = "torch.nn.modules.activation.ReLU", "torch.nn.modules.linear.Identity"


def _dense(folder: str, layer: Layer) -> dict[str, bytes]:
    out, into = layer.weight.shape
    config = {
        "in_features": into,
        "out_features": out,
        "bias": layer.bias is not None,
        "activation_function": _RELU if layer.relu else _PLAIN,
    }
    arrays = {"linear.weight": layer.weight}
    if layer.bias is not None:
        arrays["linear.bias"] = layer.bias
    return {
        f"{folder}/config.json": to_json(config).encode(),
        f"{folder}/model.safetensors": safetensors.encode(arrays),
    }


def _stack(artefact: Artefact, side: str, start: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """Returns the files of one side's modules, and the kind of each by its folder, in order."""
    key = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    normalize = {"config.json": to_json(key).encode()}
    parts: list[Layer | None] = [None, *layers(artefact, side)]
    parts += [None] * artefact.meta["normalized"]
    files: dict[str, bytes] = {}
    kinds: dict[str, str] = {}
    for at, layer in enumerate(parts):
        kind = "Normalize" if layer is None else "Dense"
        folder = f"{start}{at}_{kind}"
        kinds[folder] = _KINDS + kind
        if layer is None:
            files |= {f"{folder}/{name}": text for name, text in normalize.items()}
        else:
            files |= _dense(folder, layer)
    return files, kinds


def _routed(artefact: Artefact) -> tuple[dict[str, bytes], dict[str, str]]:
    """Returns the files of a Router over the sides; without a side given, it refuses to choose."""
    files: dict[str, bytes] = {}
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for side in sides(artefact):
        mine, kinds = _stack(artefact, side, f"{side}_")
        files |= {f"0_Router/{name}": text for name, text in mine.items()}
        types |= kinds
        structure[side] = list(kinds)
    parameters = {"default_route": None, "allow_empty_key": False}
    config = {"types": types, "structure": structure, "parameters": parameters}
    return files | {"0_Router/router_config.json": to_json(config).encode()}, {
        "0_Router": _KINDS + "Router"
    }


def files(artefact: Artefact) -> dict[str, bytes]:
    """Returns the files of an adapter for sentence-transformers, by path in their folder.

    Args:
      artefact: A sound artefact.
    """
    routed = artefact.form == "sided"
    made, kinds = _routed(artefact) if routed else _stack(artefact, "document", "")
    modules = [
        {"idx": at, "name": str(at), "path": folder, "type": kind}
        for at, (folder, kind) in enumerate(kinds.items())
    ]
    settings = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    return made | {
        "modules.json": to_json(modules).encode(),
        "config_sentence_transformers.json": to_json(settings).encode(),
    }
