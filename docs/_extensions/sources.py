"""The source as pages of the site, and links to its lines that are found while it is built, so that they cannot rot.

- {line}`signals.py: text of the line` links to the one line of that file of the package that holds the text.
- A link to a file of the repository, such as ../src/nvil/signals.py, goes to its page.
- Every entry of the reference links to where it is defined.
"""

import ast
import inspect
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "src/nvil"
FOLDERS = ("src/nvil", "tests", "examples", "benchmarks", "docs")
LINK = re.compile(r"\]\((?:\.\./)+((?:src|tests|examples|benchmarks)/[^)#\s]*)\)")
PAGES = {
    "results/README.md": "results/index.md",
    "results/search.md": "results/search.md",
    "CHANGELOG.md": "changelog.md",
}


def find_line(path: str, text: str) -> int:
    """The number of the only line of a file of the package that holds `text`; an error if there is not just one."""
    lines = (ROOT / PACKAGE / path).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} lines with {text!r}, not one.")
    return found[0]


def parse_line(text: str) -> tuple[str, str]:
    """A reference `file.py: text` taken apart."""
    path, separator, wanted = text.partition(": ")
    if not separator or not (ROOT / PACKAGE / path).is_file():
        raise ValueError(f"{text!r} is not a file of the package and the text of one of its lines.")
    return path, wanted


def page_of(path: str) -> str:
    """The page of a file of the repository; that of a package is its __init__.py."""
    path = path.rstrip("/")
    return f"_source/{path}/__init__.py" if (ROOT / path).is_dir() else f"_source/{path}"


def sources() -> list[str]:
    """Every Python file that has a page."""
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


def setup(app):
    app.add_role("line", _line_role)
    app.connect("source-read", _link_sources)
    app.connect("html-collect-pages", _pages)
    app.config.linkcode_resolve = _defined_at
    return {"parallel_read_safe": True}


def _relative(docname: str, page: str) -> str:
    return posixpath.relpath(page, posixpath.dirname(docname) or ".")


def _line_role(name, rawtext, text, lineno, inliner, options=None, content=None):
    from docutils import nodes

    try:
        path, wanted = parse_line(text)
        number = find_line(path, wanted)
    except ValueError as error:
        return [], [inliner.reporter.warning(str(error), line=lineno)]
    docname = inliner.document.settings.env.docname
    link = nodes.reference(
        rawtext,
        "",
        nodes.literal("", f"{path}:{number}"),
        refuri=_relative(docname, f"{page_of(f'{PACKAGE}/{path}')}.html#L-{number}"),
        internal=True,
        reftitle=wanted,
    )
    return [link], []


def _link_sources(app, docname, text):
    def link(found: re.Match[str]) -> str:
        path = found[1]
        if not (ROOT / path).exists():
            raise ValueError(f"{docname} links to {path}, which does not exist.")
        return f"](source:{_relative(docname, page_of(path))}.html)"

    text[0] = LINK.sub(link, text[0])
    for path, page in PAGES.items():
        text[0] = re.sub(rf"\]\((?:\.\./)+{re.escape(path)}\)", f"]({_relative(docname, page)})", text[0])


def _pages(app):
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    formatter = HtmlFormatter(linespans="L", cssclass="highlight source")
    for path in sources():
        code = highlight((ROOT / path).read_text(encoding="utf-8"), PythonLexer(stripnl=False), formatter)
        yield f"_source/{path}", {"title": path, "body": f"<h1>{path}</h1>\n{code}"}, "page.html"


def _defined_at(domain, info):
    """Where the reference's entry is defined. All pages of the reference are one folder down from the top."""
    module = sys.modules.get(info["module"])
    thing = module
    try:
        for part in info["fullname"].split("."):
            thing = getattr(thing, part)
        thing = inspect.unwrap(getattr(thing, "fget", None) or thing)
        path = Path(inspect.getsourcefile(thing) or "").resolve()
        number = inspect.getsourcelines(thing)[1]
    except (AttributeError, TypeError, OSError):
        found = _assigned(module, info["fullname"])
        if found is None:
            return None
        path, number = found
    if not path.is_relative_to(ROOT / PACKAGE):
        return None
    return f"../_source/{path.relative_to(ROOT).as_posix()}.html#L-{number}"


def _assigned(module, fullname: str) -> tuple[Path, int] | None:
    """Where a field of a class or a constant of a module is, which have no source of their own."""
    path = Path(getattr(module, "__file__", None) or "").resolve()
    if not path.is_file():
        return None
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for part in fullname.split("."):
        for node in body:
            names = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            if getattr(node, "name", None) == part or any(getattr(name, "id", None) == part for name in names):
                body, number = getattr(node, "body", []), node.lineno
                break
        else:
            return None
    return path, number
