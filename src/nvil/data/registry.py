"""The named data sets: where they come from, what they are, and how their files become cases.

The same name gives the same cases in the same splits on every machine.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from nvil.data import text
from nvil.data.corpora import lewis_tokens, reuters_stories, without_header
from nvil.data.dataset import hold_out_labels
from nvil.data.download import Remote, cache_folder, fetch, find
from nvil.data.matrices import save_matrix, write_documents
from nvil.data.readers import READ_ERRORS, Contents, idx_labels, members, one_line, read
from nvil.errors import UsageError
from nvil.rows import as_rows, plain

PREPARED = "prepared-2"
"""The folder of prepared word counts; its number grows when the preparation changes."""


@dataclasses.dataclass(frozen=True)
class Named:
    """A named data set.

    `read` makes its contents of its files; `prepare`, for collections of text, writes word counts to a folder instead,
    once, and they are mapped from there. `grey` data is made binary by `binarize`. The first `context` columns of a
    case are what the others are modelled given.
    """

    cases: str
    variables: str
    split: str
    origin: str
    download: str = "none"
    files: tuple[Remote, ...] = ()
    read: Callable[..., Contents] | None = None
    prepare: Callable[..., None] | None = None
    grey: bool = False
    context: int = 0

    @property
    def name(self) -> str:
        return next(name for name, entry in NAMED.items() if entry is self)

    @property
    def folder(self) -> str:
        """The name of the folder of its files; two protocols for the same files share one."""
        return next(name for name, entry in NAMED.items() if entry.files == self.files)

    @property
    def prepared(self) -> Path:
        return cache_folder() / self.folder / PREPARED

    def here(self) -> bool:
        """Whether it is on this machine: prepared, or with all its files whole and undamaged."""
        if self.prepare and self.prepared.exists():
            return True
        try:
            return all(find(file, self.folder, shared_name=_shared(file)) for file in self.files)
        except UsageError:
            return False

    def fetch(self, *, quiet: bool = False) -> list[Path]:
        """Its files on this machine, downloaded where they are not there yet."""
        return [fetch(file, self.folder, shared_name=_shared(file), quiet=quiet) for file in self.files]

    def paths(self) -> list[Path]:
        """Where its files are on this machine, and the word counts made of them."""
        found = [find(file, self.folder, shared_name=_shared(file)) for file in self.files]
        return [*(path for path in found if path is not None), *([self.prepared] if self.prepare else [])]

    def load(self, *, quiet: bool = False) -> Contents:
        if self.read is not None:
            contents = _damaged_is_said(self.name, self.read, *self.fetch(quiet=quiet))
            return dataclasses.replace(contents, context=self.context)
        if self.prepare is not None and not self.prepared.exists():
            files = self.fetch(quiet=quiet)
            try:
                _damaged_is_said(self.name, self.prepare, self.prepared, *files)
            except UsageError:
                if not self.prepared.exists():  # nor did another process prepare it meanwhile
                    raise
        return dataclasses.replace(read(self.prepared), note=self.variables)


def _damaged_is_said(name: str, work: Callable[..., Any], *paths: Path) -> Any:
    try:
        return work(*paths)
    except UsageError:
        raise
    except READ_ERRORS as error:
        raise UsageError(f"The files of the data set {name!r} cannot be read: {one_line(error)}.") from error


def _shared(file: Remote) -> bool:
    """Whether another file of another data set has this name."""
    return any(other.name == file.name and other != file for entry in NAMED.values() for other in entry.files)


def _digits() -> Contents:
    ink, digits = _inks()
    train, test = map(plain, as_rows((ink >= 8).astype(np.uint8)).hold_out(297, seed=0))
    note = "a pixel is on where its ink is at least 8 of 16"
    labels = hold_out_labels(tuple(map(str, digits.tolist())), 297)
    return Contents({"train": train, "test": test}, note=note, labels=labels)


def _inks() -> tuple[np.ndarray, np.ndarray]:
    """The pictures of scikit-learn's digits, 0 to 16, and which they are."""
    # To import scikit-learn takes longer than all else before training, and this is all that a first run needs of it.
    package = importlib.util.find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(int)
    from sklearn.datasets import load_digits

    found: Any = load_digits(return_X_y=True)
    return found


def _rows(path: Path) -> Any:
    return read(path).splits["all"]


def _binarized_mnist(train: Path, validation: Path, test: Path) -> Contents:
    """The paper's protocol: 60,000 training cases, off which validation cases are split."""
    splits = {"train": np.concatenate([_rows(train), _rows(validation)]), "test": _rows(test)}
    return Contents(splits, note="the fixed binarization of Salakhutdinov & Murray (2008)")


def _binarized_mnist_50k(train: Path, validation: Path, test: Path) -> Contents:
    splits = {"train": _rows(train), "validation": _rows(validation), "test": _rows(test)}
    return Contents(splits, note="the fixed binarization of Salakhutdinov & Murray (2008), validation set of its own")


def _idx_pair(train: Path, test: Path) -> Contents:
    splits = {"train": train, "test": test}
    labels = {split: idx_labels(path) for split, path in splits.items()}
    return Contents(
        {split: _rows(path) for split, path in splits.items()}, labels=labels if all(labels.values()) else {}
    )


def _omniglot(path: Path) -> Contents:
    """The columns of `data` and `testdata` are drawings, column after column of pixels."""
    arrays = scipy.io.loadmat(path, variable_names=["data", "testdata"])

    def upright(drawings: Any) -> Any:
        return np.ascontiguousarray(drawings.T.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784), np.float32)

    return Contents({"train": upright(arrays["data"]), "test": upright(arrays["testdata"])})


def prepare_newsgroups(folder: Path, archive: Path) -> None:
    """2000 words of the posts without their headers, English stop words left out; the class is the group."""

    def posts(split: str) -> Iterator[tuple[str, str]]:
        for name, content in members(archive):
            if name.startswith(f"20news-bydate-{split}/"):
                yield name.split("/")[1], without_header(content.decode("latin-1"))

    _save_counted(folder, posts, words=2000)


def prepare_reuters(folder: Path, archive: Path) -> None:
    """The ModApte split, 10,000 words of titles and bodies, no English stop words; the class is the first topic."""

    def stories(split: str) -> Iterator[tuple[str, str]]:
        for name, content in members(archive):
            if name.endswith(".sgm"):
                for which, topic, story in reuters_stories(content.decode("latin-1")):
                    if which == split:
                        yield topic, story

    _save_counted(folder, stories, words=10_000)


def _save_counted(folder: Path, documents: Callable[[str], Iterator[tuple[str, str]]], words: int) -> None:
    """Count and save the `(class, text)` of each split."""
    import scipy.sparse

    classes: dict[str, list[str]] = {"train": [], "test": []}

    def texts(split: str) -> Iterator[str]:
        for label, document in documents(split):
            classes[split].append(label)
            yield document

    splits = {split: lambda split=split: texts(split) for split in classes}
    counted = text.count(splits, words=words, stop_words="english", max_df=1.0, by="tokens")
    train, test = counted.splits["train"], counted.splits["test"]
    rows = np.arange(train.shape[0], train.shape[0] + test.shape[0])
    save_matrix(
        folder, scipy.sparse.vstack([train, test]), counted.vocabulary, rows, classes["train"] + classes["test"]
    )


def prepare_rcv1(folder: Path, *files: Path) -> None:
    """The 10,000 most frequent tokens; 10,000 random documents, always the same, are the test set."""
    write_documents(folder, lambda: lewis_tokens(files), words=10_000, test=10_000)


def _remotes(names_and_checksums: dict[str, Any], *bases: str) -> tuple[Remote, ...]:
    return tuple(
        Remote(name, tuple(base + name for base in bases), **checksums)
        for name, checksums in names_and_checksums.items()
    )


BINARIZED_MNIST = _remotes(
    {
        f"binarized_mnist_{split}.amat": {"sha256": sha256}
        for split, sha256 in {
            "train": "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
            "valid": "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
            "test": "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
        }.items()
    },
    "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/",
)
MNIST = _remotes(
    {
        "train-images-idx3-ubyte.gz": {
            "sha256": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "content_sha256": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        },
        "t10k-images-idx3-ubyte.gz": {
            "sha256": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "content_sha256": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        },
    },
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
FASHION_MNIST = _remotes(
    {
        "train-images-idx3-ubyte.gz": {
            "sha256": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "content_sha256": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        },
        "t10k-images-idx3-ubyte.gz": {
            "sha256": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "content_sha256": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        },
    },
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
OMNIGLOT = _remotes(
    {"chardata.mat": {"git_blob": "016a3536ffe5e1d38e42563a18d7a78bfaf643ec"}},
    "https://github.com/yburda/iwae/raw/master/datasets/OMNIGLOT/",
)
NEWSGROUPS = (
    Remote(
        "20news-bydate.tar.gz",
        (
            "https://ndownloader.figshare.com/files/5975967",
            "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
        ),
        sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        members_sha256="f5e09281ac497458181e6650b89e2a39b7ba5f8a928bc3ebfe215e181b99200b",
    ),
)
RCV1 = _remotes(
    {f"lyrl2004_tokens_{part}.dat.gz": {} for part in ("train", "test_pt0", "test_pt1", "test_pt2", "test_pt3")},
    "http://www.ai.mit.edu/projects/jmlr/papers/volume5/lewis04a/a12-token-files/",
    "http://www.ai.mit.edu/projects/jmlr/papers/volume5/lyrl2004/a12-token-files/",
)
REUTERS = (
    Remote(
        "reuters21578.tar.gz",
        (
            "https://archive.ics.uci.edu/ml/machine-learning-databases/reuters21578-mld/reuters21578.tar.gz",
            "https://kdd.ics.uci.edu/databases/reuters21578/reuters21578.tar.gz",
            "http://www.daviddlewis.com/resources/testcollections/reuters21578/reuters21578.tar.gz",
        ),
    ),
)

NAMED: dict[str, Named] = {
    "digits": Named(
        cases="1,500 + 297",
        variables="8x8 pixels, on where the ink is at least 8 of 16",
        split="297 random test cases, always the same",
        origin="ships with scikit-learn; Alpaydin & Kaynak (1998), CC BY 4.0",
        read=_digits,
    ),
    "binarized-mnist": Named(
        cases="60,000 + 10,000",
        variables="28x28 pixels, the fixed binarization of Salakhutdinov & Murray (2008)",
        split="the paper's: validation cases are split off the 60,000",
        origin="Larochelle's files of MNIST; no licence stated",
        download="110 MB",
        files=BINARIZED_MNIST,
        read=_binarized_mnist,
    ),
    "binarized-mnist-50k": Named(
        cases="50,000 + 10,000 + 10,000",
        variables="28x28 pixels, the same files as binarized-mnist",
        split="Larochelle's training, validation and test sets",
        origin="Larochelle's files of MNIST; no licence stated",
        download="110 MB",
        files=BINARIZED_MNIST,
        read=_binarized_mnist_50k,
    ),
    "binarized-mnist-halves": Named(
        cases="60,000 + 10,000",
        variables="the lower 14x28 pixels given the upper ones, the same files as binarized-mnist",
        split="that of binarized-mnist",
        origin="Larochelle's files of MNIST; no licence stated",
        download="110 MB",
        files=BINARIZED_MNIST,
        read=_binarized_mnist,
        context=392,
    ),
    "mnist": Named(
        cases="60,000 + 10,000",
        variables='28x28 grey levels; stochastic binarization unless `binarize="threshold"`',
        split="the published one",
        origin="LeCun, Cortes & Burges (1998), CC BY-SA 3.0",
        download="12 MB",
        files=MNIST,
        read=_idx_pair,
        grey=True,
    ),
    "omniglot": Named(
        cases="24,345 + 8,070",
        variables='28x28 grey levels; stochastic binarization unless `binarize="threshold"`',
        split="that of Burda, Grosse & Salakhutdinov (2016)",
        origin="Lake, Salakhutdinov & Tenenbaum (2015), MIT licence",
        download="size not published",
        files=OMNIGLOT,
        read=_omniglot,
        grey=True,
    ),
    "fashion-mnist": Named(
        cases="60,000 + 10,000",
        variables='28x28 grey levels; stochastic binarization unless `binarize="threshold"`',
        split="the published one",
        origin="Xiao, Rasul & Vollgraf (2017), MIT licence",
        download="31 MB",
        files=FASHION_MNIST,
        read=_idx_pair,
        grey=True,
    ),
    "20newsgroups": Named(
        cases="11,314 + 7,532",
        variables="counts of the 2000 most frequent words (no headers, no English stop words, not stemmed)",
        split="by date, as published",
        origin="Lang (1995); no licence stated",
        download="14 MB",
        files=NEWSGROUPS,
        prepare=prepare_newsgroups,
    ),
    "rcv1": Named(
        cases="794,414 + 10,000",
        variables="counts of the 10,000 most frequent stems (stop words left out, as published)",
        split="10,000 random test documents, always the same",
        origin="Lewis, Yang, Rose & Li (2004), for research",
        download="size not published",
        files=RCV1,
        prepare=prepare_rcv1,
    ),
    "reuters-21578": Named(
        cases="9,603 + 3,299",
        variables="counts of the 10,000 most frequent words (no English stop words, not stemmed)",
        split="ModApte",
        origin="Lewis (1997), for research",
        download="8 MB",
        files=REUTERS,
        prepare=prepare_reuters,
    ),
}
