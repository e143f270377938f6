"""Starts `nvil` commands, each in a process of its own that can be killed, without paying for the imports every time.

Run as a script it imports the package once, before JAX has started a thread, and forks at each request.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class Commands:
    """The other side: start commands, wait for them, and see how they ended."""

    def __init__(self, folder: Path):
        """`folder`: where the commands run."""
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = folder

    def start(self, *arguments: object) -> int:
        """The process number of a new `nvil` with these arguments."""
        return self._ask({"start": [str(argument) for argument in arguments]})

    def wait(self, pid: int) -> int:
        """How it ended: an exit code, or minus the number of a signal."""
        return os.waitstatus_to_exitcode(self._ask({"wait": pid}))

    def run(self, *arguments: object) -> int:
        return self.wait(self.start(*arguments))

    def error(self, pid: int) -> str:
        """What a command wrote to standard error."""
        return (self.folder / f"{pid}.err").read_text()

    def close(self) -> None:
        self.process.communicate()

    def _ask(self, request: dict) -> int:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def plain_page(run: Any, out: Path | None = None, **_: Any) -> Path:
    """In the place of `nvil.report.write_report`, where a test is not about the page that ends every training."""
    page = run.folder / "report.html" if out is None else out
    page.write_text("a page")
    return page


def plain_diagnose(_: Any, state: Any, rows: Any) -> Any:
    """In the place of `Learner.diagnose`, where a test is not about diagnostics: compiling those takes longest.

    Still a function of the state, so that the same reports mean the same states.
    """
    import jax
    import numpy as np

    from nvil.diagnostics import Diagnostics

    size = sum(float(np.sum(np.abs(leaf))) for leaf in jax.tree.leaves(state.params))
    return Diagnostics(None, {"model": size}, None, None)


def main() -> None:
    import nvil.cli.train
    import nvil.evaluation
    import nvil.report
    import nvil.runs.run

    nvil.report.write_report = plain_page  # never reached by those that are killed, and drawing it takes longest
    nvil.Learner.diagnose = plain_diagnose
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitpid(request["wait"], 0)[1], flush=True)
            continue
        child = os.fork()
        if child:
            print(child, flush=True)
            continue
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open(f"{os.getpid()}.err", os.O_WRONLY | os.O_CREAT, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        code = 0
        try:
            nvil.cli.main(request["start"])
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


if __name__ == "__main__":
    main()
