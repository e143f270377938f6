"""What `nvil COMMAND --help` says, for every command: the directive {helps}."""

import contextlib
import io
import os

from docutils import nodes
from docutils.parsers.rst import Directive

WIDTH = 88


def setup(app):
    app.add_directive("helps", Helps)
    return {"parallel_read_safe": True}


class Helps(Directive):
    """A section for each command."""

    def run(self):
        from nvil.cli import COMMANDS

        found = []
        for name, what in COMMANDS.items():
            section = nodes.section(ids=[f"nvil-{name}"], names=[f"nvil {name}"])
            section += [nodes.title("", f"nvil {name}"), nodes.paragraph("", what)]
            section += nodes.literal_block("", help_of(name), language="text")
            found.append(section)
        return found


def help_of(name: str) -> str:
    """The help of a command, as a terminal of `WIDTH` columns without colours shows it."""
    from nvil.cli import main

    os.environ |= {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return said.getvalue().rstrip()
