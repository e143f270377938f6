"""Folders: of texts, of pictures, of the idx files of MNIST. What a folder holds must all be of one kind."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nvil.errors import UsageError

PICTURES = (".png", ".jpg", ".jpeg")
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"%PDF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8")


def files_in(folder: Path) -> list[Path]:
    """All files in a folder and the folders in it, sorted; hidden ones are left out."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(p.startswith(".") for p in path.relative_to(folder).parts))


def split_of(name: str) -> str:
    """Which split a file belongs to, by the folders it is in: .../train/..., .../20news-bydate-test/..."""
    for part in name.lower().split("/")[:-1]:
        if found := re.search(r"(?:^|[-_.])(train|test)(?:ing)?$", part):
            return found[1]
    return "all"


def splits_of(names: Iterable[str]) -> tuple[str, ...]:
    """("train", "test") where every file is in one of these, else ("all",)."""
    return ("train", "test") if {split_of(name) for name in names} == {"train", "test"} else ("all",)


def folder_labels(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The folder that each file of a split is in, where these part every split into several classes."""
    names = list(names)
    found = {
        split: tuple(name.split("/")[-2] if "/" in name else "" for name in names if split in ("all", split_of(name)))
        for split in splits_of(names)
    }
    return found if all(len(set(labels)) > 1 for labels in found.values()) else {}


def checked_text(content: bytes, where: Any) -> bytes:
    """Refuse what is not text: packed files and pictures by how they begin, others by their zero bytes."""
    if content.startswith(PACKED) or b"\0" in content:
        raise UsageError(f"{where} is not text, or not in UTF-8; among texts every file must be, so move it elsewhere.")
    return content


def is_idx(name: str) -> bool:
    """Whether a name is that of an idx file, packed or not."""
    return re.search(r"[.-]idx\d?(-ubyte)?(\.gz)?$", name.lower()) is not None


def idx_pair(files: Iterable[Path], folder: Path) -> dict[str, Path]:
    """The pictures among the idx files of a folder, by split: `train-images-...` and `t10k-images-...`, or one file."""
    by_name = {path.name.lower().removesuffix(".gz"): path for path in sorted(files, reverse=True)}  # unpacked ones win
    pictures = {name: path for name, path in by_name.items() if not re.search(r"idx1|label", name)}
    if len(pictures) == 1:
        return {"all": next(iter(pictures.values()))}
    splits: dict[str, Path] = {}
    for name, path in pictures.items():
        found = re.search(r"train|t10k|test", name)
        splits["train" if found and found[0] == "train" else "test"] = path
    if len(pictures) != 2 or len(splits) != 2:
        held = ", ".join(sorted(path.name for path in pictures.values())) or "none"
        raise UsageError(
            f"{folder} must hold the idx file of one set of pictures, or train-images and t10k-images; it holds {held}."
        )
    return {split: splits[split] for split in ("train", "test")}


def read_pictures(files: Mapping[str, list[Path]], memory: int) -> tuple[dict[str, np.ndarray], tuple[int, int]]:
    """Pictures as grey levels from 0 to 255, all of one size: the cases of every split, and (height, width)."""
    first: tuple[Path, tuple[int, int]] | None = None
    cases: dict[str, np.ndarray] = {}
    for split, paths in files.items():
        for i, path in enumerate(paths):
            grey = _grey(path)
            first = first or (path, grey.shape)
            if grey.shape != first[1]:
                sizes = [f"{width}x{height}" for height, width in (grey.shape, first[1])]
                raise UsageError(
                    f"{path} is a picture of {sizes[0]}, and {first[0]} of {sizes[1]}; all must be of one size."
                )
            if split not in cases:
                if len(paths) * grey.size > memory // 2:
                    raise MemoryError
                cases[split] = np.empty((len(paths), grey.size), np.uint8)
            cases[split][i] = grey.ravel()
    assert first is not None
    return cases, first[1]


def _grey(path: Path) -> Any:
    """A picture in 8 bits of grey; what is transparent is white."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:  # it comes with matplotlib
        raise UsageError("Reading pictures needs Pillow: pip install pillow") from error
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            if picture.mode.startswith(("I", "F")):
                raise UsageError(f"{path} has more than 8 bits per pixel; save it with 8.")
            picture = ImageOps.exif_transpose(picture)
            if picture.has_transparency_data:
                picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture.convert("RGBA"))
            return np.asarray(picture.convert("L"))
    except UsageError:
        raise
    except Exception as error:  # Pillow raises almost anything on a damaged file
        raise UsageError(f"The picture {path} cannot be read; it is damaged, or no PNG or JPEG.") from error


def texts(files: Iterable[Path], folder: Path, which: str) -> Iterator[bytes]:
    """The documents of a folder that belong to a split, one after another."""
    for path in files:
        if which in ("all", split_of(path.relative_to(folder).as_posix())):
            yield checked_text(path.read_bytes(), path)
