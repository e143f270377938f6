"""Downloads, with a server on this machine in the place of the public one."""

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nvil import DownloadError, UsageError
from nvil.cli import main
from nvil.data import download
from nvil.data.download import Remote, fetch, find
from nvil.data.matrices import save_matrix, write_documents
from nvil.data.registry import NAMED, Named

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """/good serves ranges; /cut ends every answer halfway through what is left; /norange ignores them."""

    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Range")))
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/broken":
            self.send_error(503)
            return
        content = b"<html>moved</html>" if self.path == "/wrong" else CONTENT
        start = 0
        if (wanted := self.headers.get("Range")) and self.path != "/norange":
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        rest = content[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        first = len(self.server.requests) == 1
        cut = (self.path == "/cut" and first) or self.path == "/always-cut" or (self.path == "/norange" and first)
        self.wfile.write(rest[: len(rest) // 2] if cut else rest)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.delenv("NVIL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        server.address = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()


def remote(server, *paths, **checksums):
    return Remote("file.bin", tuple(server.address + path for path in paths), **(checksums or {"sha256": SHA256}))


def left():
    return sorted(path.name for path in (download.cache_folder() / "set").iterdir())


def test_success_and_never_twice(server, capsys):
    file = remote(server, "/good")
    path = fetch(file, "set")
    assert path.read_bytes() == CONTENT
    assert left() == ["file.bin"]
    assert fetch(file, "set") == path
    assert len(server.requests) == 1
    assert capsys.readouterr().err == "nvil: fetching file.bin (1.0 MB)\n"


def test_of_two_at_once_one_fetches_and_the_other_waits(server, monkeypatch):
    both, missed = threading.Barrier(2), threading.local()

    def find_together(*arguments, **more):
        found = find(*arguments, **more)
        if not hasattr(missed, "once"):
            missed.once = both.wait(timeout=10)
        return found

    monkeypatch.setattr(download, "find", find_together)
    with ThreadPoolExecutor(2) as threads:
        paths = list(threads.map(lambda _: fetch(remote(server, "/good"), "set", quiet=True), range(2)))
    assert [path.read_bytes() for path in paths] == [CONTENT, CONTENT]
    assert server.requests == [("/good", None)]


def test_of_two_that_prepare_a_set_the_slower_takes_what_the_faster_wrote(server, monkeypatch):
    def prepare(folder):
        write_documents(folder, lambda: iter([["cat"], ["dog"]]), words=2, test=1)
        # again, as the slower does, in either way of writing
        with pytest.raises(OSError, match="not empty"):
            write_documents(folder, lambda: iter([["cat"], ["dog"]]), words=2, test=1)
        save_matrix(folder, [[1]], ["cat"])

    about = {"cases": "", "variables": "words", "split": "", "origin": ""}
    monkeypatch.setitem(NAMED, "pets", Named(**about, prepare=prepare))
    assert NAMED["pets"].load().vocabulary == ("cat", "dog")


@pytest.mark.parametrize("path", ["/cut", "/norange"])
def test_a_cut_connection_goes_on_where_it_stopped(server, path):
    assert fetch(remote(server, path), "set", quiet=True).read_bytes() == CONTENT
    assert server.requests == [(path, None), (path, f"bytes={len(CONTENT) // 2}-")]


def test_a_later_try_goes_on_from_an_earlier_one(server):
    with pytest.raises(DownloadError, match="connection was cut"):
        fetch(remote(server, "/always-cut"), "set", quiet=True)
    assert left() == ["file.bin.part"]
    have = (download.cache_folder() / "set" / "file.bin.part").stat().st_size
    assert fetch(remote(server, "/good"), "set", quiet=True).read_bytes() == CONTENT
    assert server.requests[-1] == ("/good", f"bytes={have}-")


def test_the_wrong_file_is_refused_and_the_next_address_tried(server):
    with pytest.raises(DownloadError, match="another checksum"):
        fetch(remote(server, "/wrong"), "set", quiet=True)
    assert left() == []
    assert fetch(remote(server, "/wrong", "/missing", "/good"), "set", quiet=True).read_bytes() == CONTENT


def test_a_missing_file_is_not_asked_for_again_but_a_server_in_trouble_is(server):
    assert fetch(remote(server, "/missing", "/broken", "/good"), "set", quiet=True).read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/missing", "/broken", "/broken", "/broken", "/good"]


def test_a_part_that_is_longer_than_the_file_is_thrown_away(server):
    part = download.cache_folder() / "set" / "file.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    assert fetch(remote(server, "/good"), "set", quiet=True).read_bytes() == CONTENT


def test_without_a_network_it_is_said_what_was_wanted_from_where_and_where_to_put_it(server, tmp_path, monkeypatch):
    file = Remote("file.bin", ("http://127.0.0.1:9/file.bin",), SHA256)
    with pytest.raises(DownloadError) as caught:
        fetch(file, "set", quiet=True)
    assert "Could not get file.bin for the data set 'set' (http://127.0.0.1:9/file.bin: no connection" in str(
        caught.value
    )
    assert f"put it at {tmp_path / 'cache' / 'nvil' / 'set' / 'file.bin'}" in str(caught.value)
    monkeypatch.setenv("NVIL_DATA", str(tmp_path / "own"))
    with pytest.raises(DownloadError, match=str(tmp_path / "own" / "set" / "file.bin")):
        fetch(file, "set", quiet=True)


def test_a_file_put_there_by_hand_comes_first_and_is_checked(server, tmp_path, monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(tmp_path))
    (tmp_path / "file.bin").write_bytes(CONTENT)
    assert fetch(remote(server, "/good"), "set") == tmp_path / "file.bin"
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(UsageError, match=r"is not the published file\.bin: its checksum differs"):
        fetch(remote(server, "/good"), "set")
    # by a name that other sets' files have too, it may be theirs
    assert find(remote(server, "/good"), "set", shared_name=True) is None
    assert server.requests == []


def test_a_file_packed_anew_is_known_by_its_content(server, tmp_path, monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(tmp_path))
    packed = Remote("file.bin.gz", (f"{server.address}/good",), sha256="0" * 64, content_sha256=SHA256)
    (tmp_path / "file.bin.gz").write_bytes(gzip.compress(CONTENT, 1))
    assert find(packed, "set") == tmp_path / "file.bin.gz"
    (tmp_path / "file.bin.gz").write_bytes(gzip.compress(CONTENT[:-1]))
    with pytest.raises(UsageError, match="its checksum differs, and so does that of its contents"):
        find(packed, "set")
    (tmp_path / "file.bin.gz").unlink()
    (tmp_path / "file.bin").write_bytes(CONTENT)  # not packed at all
    assert find(packed, "set") == tmp_path / "file.bin"
    # but what is downloaded must be the published file itself
    (tmp_path / "file.bin").unlink()
    with pytest.raises(DownloadError, match="another checksum"):
        fetch(packed, "set", quiet=True)


def write_archive(path, files, mode):
    with tarfile.open(path, mode) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_an_archive_packed_anew_is_known_by_its_files(server, tmp_path, monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(tmp_path))
    files = [("a/1", b"one"), ("b/2", CONTENT)]
    lines = sorted(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files)
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    remote = Remote("set.tar.gz", (), sha256="0" * 64, members_sha256=expected)
    write_archive(tmp_path / "set.tar.gz", files, "w:gz")
    assert find(remote, "set") is not None
    write_archive(tmp_path / "set.tar.gz", [(f"./{name}", content) for name, content in files[::-1]], "w:xz")
    assert find(remote, "set") is not None
    for other in (files[:1], [*files, ("c", b"")], [("a/1", b"two"), files[1]], [("a/0", b"one"), files[1]]):
        write_archive(tmp_path / "set.tar.gz", other, "w:gz")
        with pytest.raises(UsageError, match="so does that of its contents"):
            find(remote, "set")
    (tmp_path / "set.tar.gz").write_bytes(b"no archive")
    with pytest.raises(UsageError, match="so does that of its contents"):
        find(remote, "set")


def test_without_a_published_checksum_the_first_download_counts(server):
    file = Remote("file.bin", (f"{server.address}/good",))
    path = fetch(file, "set", quiet=True)
    assert left() == ["file.bin", "file.bin.sha256"]
    assert find(file, "set") == path
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(UsageError, match="its checksum differs"):
        find(file, "set")


def test_the_command_line_lists_and_refuses(server, capsys, monkeypatch, tmp_path):
    main(["data", "list"])
    listed = capsys.readouterr().out
    for name in ("digits", "binarized-mnist", "mnist", "omniglot", "fashion-mnist", "20newsgroups", "rcv1"):
        assert f"\n{name} " in "\n" + listed
    assert "ships with scikit-learn" in listed
    main(["data", "fetch", "digits"])
    assert "1500 cases of 64 variables" in capsys.readouterr().out
    for arguments, message in ((["fetch", "minst"], "did you mean 'mnist'"), (["fetch"], "Which one?")):
        with pytest.raises(SystemExit) as caught:
            main(["data", *arguments])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err
    assert not Path(download.cache_folder()).exists()
