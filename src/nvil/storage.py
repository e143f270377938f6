"""Files that are never half-written, and pytrees of arrays in safetensors. Nothing is ever unpickled."""

import contextlib
import errno
import json
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from nvil.errors import UsageError


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path` that takes its place, synced, when the block ends well, and goes when not."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def writable_folder(path: Path) -> Path:
    """Make sure that `path` is a folder one can write to, or say in a sentence why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{path} cannot be a folder: a file of that name is in the way.") from error
    except OSError as error:
        reason = "there is no permission" if error.errno in (errno.EACCES, errno.EPERM) else error.strerror
        raise UsageError(f"Cannot write to {path}: {reason}. Choose another --out.") from error
    return path


def output_file(path: Path, kinds: tuple[str, ...]) -> Path:
    """Make sure that a file of one of these `kinds` (".png", ...) can be written at `path`, before any work is done."""
    if path.suffix not in kinds:
        raise UsageError(f"Cannot write {path}: its name should end in {' or '.join(kinds)}.")
    if path.is_dir():
        raise UsageError(f"Cannot write {path}: it is a folder; give a file name.")
    writable_folder(path.parent)
    return path


def save_tree(path: Path, tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write the arrays of a pytree, named by their place in it, such as `model.layers.0.logits.weights`."""
    arrays = {name: _plain(leaf) for name, leaf in _named_leaves(tree)}
    with written_beside(path) as file:
        # One entry, because the order of several is not fixed: equal trees are equal files.
        file.write(safetensors.numpy.save(arrays, metadata={"nvil": json.dumps(dict(metadata or {}))}))


def load_tree(path: Path, like: Any) -> tuple[Any, dict[str, str]]:
    """Read a pytree of the shape of `like` and the metadata; a file that does not fit is refused."""
    try:
        with safe_open(path, framework="numpy") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            metadata = json.loads((file.metadata() or {}).get("nvil", "{}"))
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path} is not a readable safetensors file ({error}).") from error
    expected = dict(_named_leaves(like))
    if stored.keys() != expected.keys():
        odd = sorted(stored.keys() ^ expected.keys())[0]
        raise UsageError(
            f"{path} does not hold the parameters its config describes: {odd!r} is in only one of the two."
        )
    for name, leaf in expected.items():
        want = _plain(leaf)
        if stored[name].shape != want.shape or stored[name].dtype != want.dtype:
            raise UsageError(
                f"{path} does not fit its config: {name!r} is {stored[name].dtype}{list(stored[name].shape)}, "
                f"not {want.dtype}{list(want.shape)}."
            )
    leaves = [_like(stored[name], leaf) for name, leaf in expected.items()]
    arrays, static = eqx.partition(like, eqx.is_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static), metadata


def save_text(path: Path, text: str) -> None:
    with written_beside(path) as file:
        file.write(text.encode())


def to_toml(values: Mapping[str, Any], comment: str = "") -> str:
    """A flat TOML document of strings, numbers, booleans and lists of them; None is left out."""
    lines = [f"# {line}" for line in comment.splitlines()]
    # A JSON string, number, boolean or list of them is also TOML, but for non-ASCII escapes.
    lines += [
        f"{key} = {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in values.items()
        if value is not None
    ]
    return "\n".join(lines) + "\n"


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path} cannot be read ({error}).") from error


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    arrays = eqx.filter(tree, eqx.is_array)
    return [(_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(arrays)]


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _plain(leaf: Any) -> np.ndarray:
    """An array as NumPy has it; a random key as the numbers it is made of."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def _like(stored: np.ndarray, leaf: Any) -> Any:
    array = jnp.asarray(stored)
    return jax.random.wrap_key_data(array) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else array
