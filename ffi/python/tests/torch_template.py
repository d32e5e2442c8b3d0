"""Forks processes that have torch already: to import it takes most of the time of most of the tests with torch.

`Template` starts this file with the Python that has torch. It is told of each process by a line of JSON: its command line,
folder and environment, and the files of its two outputs; or of a process to wait for. It answers with a number.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

if __name__ != "__main__":
    # The template itself has no package.
    import ranks


class Template:
    """A process from which others are forked."""

    def __init__(self, python):
        self.python = python
        self.process = subprocess.Popen(
            [python, __file__], env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def start(self, command, folder, environment):
        """A process of a Python command line that begins with the path of a program, as `ranks.process` starts one."""
        python, *words = command
        assert python == self.python, (python, self.python)
        return Forked(self, words, folder, environment)

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self.ended() from error

    def answer(self, limit=None):
        """The answer to the oldest request; `subprocess.TimeoutExpired` if it takes longer than `limit` seconds."""
        if not select.select([self.process.stdout], [], [], limit)[0]:
            raise subprocess.TimeoutExpired("a forked process", limit)
        if not (line := self.process.stdout.readline()):
            raise self.ended()
        return int(line)

    def ended(self):
        """What to raise when the template is gone."""
        return RuntimeError(f"the process that forks others has ended, with status {self.process.wait()}")

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Forked:
    """As much of `subprocess.Popen` as `ranks.outcomes` asks for."""

    def __init__(self, template, words, folder, environment):
        self.template = template
        self.waited = False
        self.returncode = None
        # Numbered, as a folder is that of several processes.
        kept = len(list(folder.glob("output-*")))
        self.outputs = [folder / f"output-{kept + of}" for of in range(2)]
        for output in self.outputs:
            output.touch()
        outputs = [str(output) for output in self.outputs]
        template.ask(words=words, folder=str(folder), environment=environment, outputs=outputs)
        self.pid = template.answer(ranks.LIMIT)

    def communicate(self, timeout=None):
        self.wait(timeout)
        return [output.read_text() for output in self.outputs]

    def kill(self):
        if self.returncode is None:
            # It may be over, and nobody has asked yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout=None):
        if not self.waited:
            self.waited = True
            self.template.ask(wait=self.pid)
        if self.returncode is None:
            self.returncode = self.template.answer(timeout)
        return self.returncode


def forked():
    """Serves until nobody asks any more; in each process that is forked, returns the program to run."""
    while line := sys.stdin.readline():
        asked = json.loads(line)
        if "wait" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                return become(**asked)
        print(answer, flush=True)
    return None


def become(words, folder, environment, outputs):
    """Has this process what one has that was started with the command line."""
    for descriptor, output in [(0, os.devnull), *enumerate(outputs, 1)]:
        opened = os.open(output, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(words[0]).parent), *filter(None, named)]
    # The ranks' numbers are not the same.
    torch.seed()
    return words[0]


if __name__ == "__main__":
    import torch
    import torch.distributed
    import torch.multiprocessing
    import torch.nn.parallel

    assert len(os.listdir("/proc/self/task")) == 1, "a thread is not forked"
    __file__ = forked()
    if __file__:
        exec(compile(Path(__file__).read_bytes(), __file__, "exec"))
