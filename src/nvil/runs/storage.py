"""Files that are never half-written, and pytrees of arrays in safetensors. Nothing is ever unpickled."""

import contextlib
import errno
import hashlib
import io
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

FORMAT = 2
"""Of everything in a run's folder; a file of another one is refused."""
UNFINISHED = ".part"


class OtherFormatError(UsageError):
    """The file is of a format that only another version of this package can read."""

    def __init__(self, path: Path, version: int):
        what = (
            "install a newer nvil."
            if version > FORMAT
            else "train again in another folder, or install the version that made it (config.toml names it)."
        )
        super().__init__(f"{path} is of format {version}, and this version of nvil reads format {FORMAT}; {what}")


def check_format(path: Path, version: Any) -> None:
    """Refuse what another version wrote. Files from before there were formats have none, and are of the first."""
    try:
        number = int(1 if version is None else version)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{path} is damaged: its format is {version!r}, not a number.") from error
    if number != FORMAT:
        raise OtherFormatError(path, number)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path` that takes its place, synced, when the block ends well, and goes when not."""
    name = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
        sync_folder(path.parent)  # or a power cut could bring the old name back
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk; Windows, which opens no folders, does so by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Add a line that is on the disk when this returns. If it fails, part of the line may be there."""
    try:
        with path.open("ab") as file:
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def remove_unfinished(folder: Path) -> None:
    """Remove what a process that died in `atomic_write` left behind."""
    for path in folder.glob(f".*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def writable_folder(path: Path) -> Path:
    """Make sure that `path` is a folder one can write to, or say in a sentence why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        file = next(each for each in (path, *path.parents) if each.is_file())
        raise UsageError(f"{path} cannot be a folder: {file} is a file.") from error
    except OSError as error:
        reason = "permission denied" if error.errno in (errno.EACCES, errno.EPERM) else error.strerror
        raise UsageError(f"Cannot write to {path}: {reason}. Choose another `folder`.") from error
    return path


def foreign_file(folder: Path, own: tuple[str, ...]) -> Path | None:
    """A file in `folder` that is neither one of our `own` nor an unfinished one."""
    return next((path for path in sorted(folder.iterdir()) if path.name not in own and path.suffix != UNFINISHED), None)


def output_file(path: Path, kinds: tuple[str, ...]) -> Path:
    """Make sure that a file of one of these `kinds` (".png", ...) can be written at `path`, before any work is done."""
    if path.suffix not in kinds:
        raise UsageError(f"Cannot write {path}: its name must end in {' or '.join(kinds)}.")
    if path.is_dir():
        raise UsageError(f"Cannot write {path}: it is a folder; give a file name.")
    writable_folder(path.parent)
    return path


def save_tree(path: Path, tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write the arrays of a pytree, named by their place in it, such as `model.layers.0.logits.weights`."""
    arrays = {name: _plain(leaf) for name, leaf in named_leaves(tree)}
    text = json.dumps({"format": str(FORMAT), "sha256": _checksum(arrays), **(metadata or {})})
    with atomic_write(path) as file:
        # One entry, because the order of several is not fixed: equal trees are equal files.
        file.write(safetensors.numpy.save(arrays, metadata={"nvil": text}))


def load_tree(path: Path, like: Any) -> tuple[Any, dict[str, str]]:
    """Read a pytree and the metadata; a file that does not fit is refused.

    `like` has arrays, or only their shapes and types (`jax.ShapeDtypeStruct`), in the places of those in the file. They
    are compared before anything is read, so that no file makes this allocate more than `like` needs.
    """
    expected = {name: (leaf, *_stored_as(leaf)) for name, leaf in named_leaves(like)}
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = _metadata(path, file.metadata())
            names = set(file.keys())
            if names != expected.keys():
                odd = sorted(names ^ expected.keys())[0]
                raise UsageError(
                    f"{path} does not hold the parameters its config describes: "
                    f"{_short(odd)} is in only one of the two."
                )
            for name, (_, shape, _) in expected.items():
                found = tuple(file.get_slice(name).get_shape())
                if found != shape:
                    raise UsageError(
                        f"{path} does not fit its config: {name!r} has shape {list(found)}, not {list(shape)}."
                    )
            stored = {name: file.get_tensor(name) for name in expected}
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing.") from error
    except UsageError:
        raise
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a readable safetensors file ({_short(error)}).") from error
    for name, (_, _, dtype) in expected.items():
        if stored[name].dtype != dtype:
            raise UsageError(f"{path} does not fit its config: {name!r} is {stored[name].dtype}, not {dtype}.")
    if metadata.get("sha256", "") != _checksum(stored):
        raise UsageError(f"{path} is damaged: its checksum is not that of what it holds.")
    leaves = [_like(stored[name], leaf) for name, (leaf, _, _) in expected.items()]
    arrays, static = eqx.partition(like, _is_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static), metadata


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file that `save_tree` wrote; nothing where it cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            return _metadata(path, file.metadata())
    except (UsageError, SafetensorError, OSError, ValueError, RecursionError):
        return {}


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _metadata(path: Path, stored: Mapping[str, str] | None) -> dict[str, str]:
    metadata = json.loads((stored or {}).get("nvil", "{}"))
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UsageError(f"{path} is damaged: its metadata is not what nvil writes.")
    check_format(path, metadata.get("format"))
    return metadata


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a compressed .npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    with atomic_write(path) as file:
        file.write(buffer.getvalue())


def save_text(path: Path, text: str) -> None:
    with atomic_write(path) as file:
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


def read_config(path: Path) -> dict[str, Any]:
    """The config.toml of a run's folder; that of something else is refused."""
    values = read_toml(path)
    if "fingerprint" not in values:  # of the data: every format has it
        raise UsageError(f"{path} is not the config of an nvil run; choose another folder.")
    check_format(path, values.get("format"))
    return values


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing.") from error
    except (ValueError, RecursionError, OSError) as error:  # TOML and Unicode errors are ValueErrors
        raise UsageError(f"{path} cannot be read ({_short(error)}).") from error


def _short(what: object) -> str:
    """At most a line of what a file, which anyone may have written, has to say."""
    text = " ".join(str(what).split())
    return repr(text if len(text) <= 120 else f"{text[:117]}...") if isinstance(what, str) else text[:120]


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The arrays of a pytree, or their shapes, each with its place, such as `model.layers.0.logits.weights`."""
    arrays = eqx.filter(tree, _is_array)
    return [(_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(arrays)]


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _stored_as(leaf: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type that `_plain` gives."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return tuple(leaf.shape), np.dtype(leaf.dtype)


def _plain(leaf: Any) -> np.ndarray:
    """An array as NumPy has it; a random key as the numbers it is made of."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def zeros_like(leaf: Any) -> Any:
    """An array of zeros, or a random key of them, of the shape and type of `leaf`."""
    shape, dtype = _stored_as(leaf)
    return _like(np.zeros(shape, dtype), leaf)


def _like(stored: np.ndarray, leaf: Any) -> Any:
    array = jax.device_put(stored)  # compiles nothing, where `jnp.asarray` does for every shape
    return jax.random.wrap_key_data(array) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else array
