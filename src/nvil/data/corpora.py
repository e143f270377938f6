"""The published files of text collections: their formats, read one document at a time."""

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from nvil.data.readers import opened
from nvil.errors import UsageError


def lewis_tokens(paths: Iterable[Path]) -> Iterator[list[str]]:
    """The documents of RCV1-v2's token files (Lewis et al., 2004, appendix 12), each a list of stemmed tokens.

    A document is a line `.I <id>`, a line `.W`, lines of tokens, and a blank line.
    """
    for path in paths:
        with opened(path) as file:
            tokens: list[str] | None = None
            for number, line in enumerate(file, 1):
                if line.startswith(b".I "):
                    if tokens is not None:
                        yield tokens
                    tokens = []
                elif tokens is None and line.strip():
                    raise UsageError(f"{path}, line {number}: a document must begin with a line `.I <id>`.")
                elif tokens is not None and not line.startswith(b".W"):
                    tokens += line.decode("latin-1").split()
            if tokens is not None:
                yield tokens


STORY = re.compile(r"<REUTERS(?P<attributes>[^>]*)>(?P<body>.*?)</REUTERS>", re.DOTALL)
TOPIC = re.compile(r"<TOPICS><D>(.*?)</D>")
PARTS = re.compile(r"<(TITLE|BODY)>(.*?)</\1>", re.DOTALL)


def reuters_stories(content: str) -> Iterator[tuple[str, str, str]]:
    """The stories of a file reut2-*.sgm of Reuters-21578: `(split, topic, text)` by the ModApte split.

    The topic is the first of a story's, or "no topic"; the text is title and body. Stories that ModApte leaves out
    (not used, or without a look at their topics) are left out here.
    """
    for story in STORY.finditer(content):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', story["attributes"]))
        split = {"TRAIN": "train", "TEST": "test"}.get(attributes.get("LEWISSPLIT", ""))
        if split and attributes.get("TOPICS") == "YES":
            found = TOPIC.search(story["body"])
            topic = found[1] if found else "no topic"
            yield split, topic, html.unescape(" ".join(part[2] for part in PARTS.finditer(story["body"])))


def without_header(post: str) -> str:
    """A post of a newsgroup without its header, which ends at the first blank line."""
    return post.partition("\n\n")[2] or post
