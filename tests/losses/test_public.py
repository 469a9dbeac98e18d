import inspect
import subprocess
import sys

from dive_jax import losses

HEAVY = "flax optax orbax absl faiss datasets transformers torch sklearn matplotlib rich"


def test_import_is_light():
    """No more is loaded than jax itself loads, of what a library of losses has no use for."""
    code = f"""
import sys
import jax
before = set(sys.modules)
import dive_jax.losses
print([name for name in "{HEAVY}".split() if name in set(sys.modules) - before])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_hyper_parameters_are_given_by_name():
    for name in ("margin", "temperature", "beta", "mask", "tile"):
        for loss in losses.__all__:
            parameter = inspect.signature(getattr(losses, loss)).parameters.get(name)
            assert parameter is None or parameter.kind is parameter.KEYWORD_ONLY
