"""A thin front over Orbax: the last two states of a training run, whole or absent."""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orbax.checkpoint as ocp

from dive_jax.types import InputError

_KEPT = 2


class ForeignError(InputError):
    """A checkpoint of another encoder or other vectors: older ones are no better."""


class Checkpoints:
    """Training states under a folder, numbered by finished epochs.

    Args:
      folder: Where they lie; made when missing.
      about: What the states belong to, such as the encoder and its fingerprint; kept in each of
        them, and a state of something else is refused.

    Raises:
      OSError: If the folder cannot be made or written.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any] | None = None):
        logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax tells every step it takes
        options = ocp.CheckpointManagerOptions(
            max_to_keep=_KEPT, enable_async_checkpointing=False, create=True
        )
        self._folder = folder
        self._about = dict(about or {})
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, epochs: int, state: Any, notes: Any) -> None:
        """Writes the state reached after `epochs` epochs; older ones beyond two are removed.

        Args:
          epochs: Number of finished epochs.
          state: A tree of arrays.
          notes: Anything JSON holds, kept beside the state.
        """
        kept = {"about": self._about, "notes": notes}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), notes=ocp.args.JsonSave(kept)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._manager.save(epochs, args=items, force=True)
            self._manager.wait_until_finished()

    def epochs(self) -> tuple[int, ...]:
        """Returns the epoch counts at hand, newest first."""
        return tuple(sorted(self._manager.all_steps(), reverse=True))

    def restore(self, epochs: int, like: Any) -> tuple[Any, Any]:
        """Reads the state saved after `epochs` epochs.

        Args:
          epochs: One of `epochs()`.
          like: A tree of the same structure, of arrays or `jax.ShapeDtypeStruct` with shardings.

        Returns:
          The state, laid out as `like`, and the notes.

        Raises:
          InputError: If the checkpoint is damaged or of another structure.
          ForeignError: If it belongs to something else than `about` says.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                items = self._manager.restore(
                    epochs,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardRestore(like), notes=ocp.args.JsonRestore()
                    ),
                )
                state, kept = items["state"], items["notes"]
        except Exception as error:
            first = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise InputError(
                f"{self._folder / str(epochs)}: this checkpoint cannot be read ({first[0][:200]}); "
                "remove that folder to start from what is left"
            ) from error
        self._check(kept["about"], self._folder / str(epochs))
        return state, kept["notes"]

    def _check(self, about: Mapping[str, Any], where: Path) -> None:
        for name, wanted in self._about.items():
            if (got := about.get(name)) != wanted:
                raise ForeignError(
                    f"{where}: this checkpoint belongs to {name} {str(got)[:24]}, not to "
                    f"{str(wanted)[:24]}; name another --run_dir"
                )

    def remove(self, epochs: int) -> None:
        """Deletes one state."""
        self._manager.delete(epochs)

    def close(self) -> None:
        """Releases what Orbax holds."""
        self._manager.close()


class Restored(NamedTuple):
    """A state read back: how many epochs it has behind it, the arrays, and the notes."""

    epochs: int
    state: Any
    notes: Any


def newest(checkpoints: Checkpoints, like: Any) -> Restored | None:
    """Returns the newest readable state, or None when there is none.

    A damaged newest checkpoint is passed over for the one before, with a warning, and removed so
    that its epoch can be saved again.

    Args:
      checkpoints: Where to look.
      like: The tree to restore into; see `Checkpoints.restore`.

    Raises:
      InputError: If checkpoints exist but none can be read.
    """
    damaged: list[int] = []
    at_hand = checkpoints.epochs()
    for epochs in at_hand:
        try:
            state, notes = checkpoints.restore(epochs, like)
        except ForeignError:
            raise
        except InputError as error:
            if epochs == at_hand[-1]:
                raise
            warnings.warn(str(error), stacklevel=2)
            damaged.append(epochs)
        else:
            for each in damaged:
                checkpoints.remove(each)
            return Restored(epochs, state, notes)
    return None
