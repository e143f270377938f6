"""Files from the network: found on this machine where they are there, else fetched, and always checked.

`$NVIL_DATA` comes first, then the cache folder. A download is written beside and renamed, goes on after a cut where it
stopped, and tries every address in turn.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import http.client
import lzma
import os
import sys
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from nvil.errors import DownloadError, UsageError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

TRIES = 3
TIMEOUT = 30
PIECE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Remote:
    """A published file: its name, the addresses it is at, and what identifies its content.

    - `sha256`: of the file as published, which a download must have.
    - `content_sha256`: of what it holds when unpacked, so that a copy packed anew, or not packed, is known as well.
    - `members_sha256`: the same for a .tar archive: of a line `SHA-256  name` for each of its files, sorted.
    - `git_blob`: the name that git gives the content, where nothing else was published.

    Without any of them the checksum of the first download is kept beside the file and holds from then on.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str | None = None
    content_sha256: str | None = None
    members_sha256: str | None = None
    git_blob: str | None = None


def cache_folder() -> Path:
    """Where downloads and prepared data are kept."""
    return Path(platformdirs.user_cache_dir("nvil", appauthor=False))


def own_folder() -> Path | None:
    """$NVIL_DATA, where the user keeps data."""
    folder = os.environ.get("NVIL_DATA")
    return Path(folder) if folder else None


def places(remote: Remote, data_set: str) -> list[Path]:
    """Where the file may be on this machine, the first choice first; what is known by its content also unpacked."""
    own = own_folder()
    names = [remote.name, remote.name.removesuffix(".gz")] if remote.content_sha256 else [remote.name]
    by_hand = [folder / name for folder in (own / data_set, own) for name in names] if own else []
    return [*by_hand, cache_folder() / data_set / remote.name]


def find(remote: Remote, data_set: str, *, shared_name: bool = False) -> Path | None:
    """The file on this machine, checked; None where it is not. A damaged one is an error.

    A file by a `shared_name`, one that other data sets' files have too, may be theirs if it is in no folder of its own.
    """
    for path in places(remote, data_set):
        if not path.is_file():
            continue
        if matches(path, remote):
            return path
        if not (shared_name and path.parent == own_folder()):
            packed = remote.content_sha256 or remote.members_sha256
            raise UsageError(
                f"{path} is not the published {remote.name}: its checksum differs"
                f"{', and so does that of its contents' if packed else ''}. Delete it to have it fetched again."
            )
    return None


def fetch(remote: Remote, data_set: str, *, shared_name: bool = False, quiet: bool = False) -> Path:
    """The file on this machine, downloaded to the cache folder where it is not there yet."""
    if (found := find(remote, data_set, shared_name=shared_name)) is not None:
        return found
    target = cache_folder() / data_set / remote.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Cannot make the folder {target.parent} for downloads: {error.strerror}.") from error
    reasons = []
    with _alone(target, quiet):
        if (found := find(remote, data_set, shared_name=shared_name)) is not None:  # by the process waited for
            return found
        for address in remote.addresses:
            try:
                _download(address, remote, target, quiet)
                return target
            except (OSError, http.client.HTTPException, DownloadError) as error:
                reasons.append(f"{address}: {_reason(error)}")
    by_hand = places(remote, data_set)[0]
    raise DownloadError(
        f"Could not get {remote.name} for the data set {data_set!r} ({'; '.join(reasons)}). "
        f"Fetch it by other means and put it at {by_hand}."
    )


@contextlib.contextmanager
def _alone(target: Path, quiet: bool) -> Iterator[None]:
    """One process at a time fetches into a folder, and others wait; the kernel drops the lock with the process."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not quiet:
                    print(f"nvil: another process is fetching to {target.parent}; waiting for it", file=sys.stderr)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _download(address: str, remote: Remote, target: Path, quiet: bool) -> None:
    """Fetch one address into `target`, going on from what an earlier try left."""
    part = target.with_name(f"{target.name}.part")
    for attempt in range(1, TRIES + 1):
        try:
            _transfer(address, part, quiet)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416:  # what is there is not the beginning of this file
                part.unlink(missing_ok=True)
            elif error.code < 500:
                raise
            if attempt == TRIES:
                raise
        except (OSError, http.client.HTTPException):
            if attempt == TRIES:
                raise
    if not matches(part, remote, as_published=True):
        part.unlink()
        raise DownloadError("what came has another checksum than the published file")
    if not (remote.sha256 or remote.git_blob):
        target.with_name(f"{target.name}.sha256").write_text(f"{_sha256(part)}\n")
    os.replace(part, target)


def _transfer(address: str, part: Path, quiet: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"User-Agent": "nvil"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        goes_on = response.status == 206
        have = have if goes_on else 0
        promised = response.headers.get("Content-Length")
        total = have + int(promised) if promised and promised.isdigit() else None
        with part.open("ab" if goes_on else "wb") as file, _progress(part.stem, total, have, quiet) as advance:
            while piece := response.read(PIECE):
                file.write(piece)
                advance(len(piece))
    if total is not None and part.stat().st_size < total:
        raise ConnectionError("the connection was cut")


@contextlib.contextmanager
def _progress(name: str, total: int | None, have: int, quiet: bool) -> Iterator[Any]:
    console = Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal:
        if not quiet:
            print(f"nvil: fetching {name}{f' ({total / 1e6:.1f} MB)' if total else ''}", file=sys.stderr)
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=total, completed=have)
        yield lambda size: bar.advance(task, size)


def matches(path: Path, remote: Remote, *, as_published: bool = False) -> bool:
    """Whether a file is the published one, or, unless it must be `as_published`, holds the same."""
    if remote.sha256 is not None:
        if remote.sha256 == _sha256(path):
            return True
        if as_published:
            return False
        if remote.members_sha256 is not None:
            return remote.members_sha256 == _members_sha256(path)
        return remote.content_sha256 is not None and remote.content_sha256 == _content_sha256(path)
    if remote.git_blob is not None:
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
        return _digest(path.open("rb"), digest) == remote.git_blob
    kept = path.with_name(f"{path.name}.sha256")
    return not kept.exists() or kept.read_text().strip() == _sha256(path)


def _sha256(path: Path) -> str:
    return _digest(path.open("rb"), hashlib.sha256())


def _content_sha256(path: Path) -> str | None:
    """Of a file's content, unpacked where it is packed."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        return _digest(gzip.open(path, "rb") if packed else path.open("rb"), hashlib.sha256())
    except (OSError, EOFError, zlib.error):
        return None


def _members_sha256(path: Path) -> str | None:
    """What `sha256sum` would print of the files in an archive, sorted, and of that the SHA-256."""
    lines = []
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile():
                    digest = _digest(archive.extractfile(member), hashlib.sha256())
                    lines.append(f"{digest}  {member.name.removeprefix('./')}\n")
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error, lzma.LZMAError):
        return None
    return hashlib.sha256("".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def _digest(file: Any, digest: Any) -> str:
    with file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({error.reason})"
    return str(error) or type(error).__name__
