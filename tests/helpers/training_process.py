"""Training runs in forked processes, which report their stages and can be limited and killed."""

import multiprocessing
import os
import re
import resource
import signal
import sys
from functools import partial
from itertools import count

# Before the fork, so that each process needs not import them.
import torch._dynamo  # noqa: F401

import latent_tokens.training.loop  # noqa: F401
from latent_tokens.cli import main
from latent_tokens.commands import RUN
from latent_tokens.commands.train import Train, run_train

FORK = multiprocessing.get_context("fork")
HANGS = 300  # seconds after which a process counts as hung


def work(arguments, write_to, folder, *, limit=resource.RLIM_INFINITY, die_at=0, environment=None):
    """Run a command with limits on time, the size of files and changes of files. Report stages in lines."""
    os.dup2(write_to, 1)
    os.dup2(write_to, 2)
    signal.alarm(HANGS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the background ignores it
    os.environ |= environment or {}
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    changes = count(1)

    def audit(event, about):
        writes = event == "open" and isinstance(about[1], str) and about[1][0] in "wa"
        is_change = writes or event in ("os.rename", "os.remove")
        if is_change and str(about[0]).startswith(f"{folder}/") and next(changes) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def report(stage, step):
        os.write(1, f"\nstage {stage} {step}\n".encode())

    sys.addaudithook(audit)
    RUN[Train] = partial(run_train, observe=report)
    sys.exit(main(arguments))


class Child:
    """A forked process that runs a command."""

    def __init__(self, folder, arguments, **limits):
        self.folder, self.stages, self.text = folder, [], ""
        read_from, write_to = os.pipe()
        self.process = FORK.Process(target=work, args=(arguments, write_to, folder), kwargs=limits)
        self.process.start()
        os.close(write_to)
        self.lines = os.fdopen(read_from)

    def listen(self, stage="", times=1):
        """Wait until it has reported a stage that often. Return False if it ended before."""
        while times and (line := self.lines.readline()):
            if line.startswith("stage "):
                self.stages.append(line.split()[1:])
                times -= self.stages[-1][0] == stage
            else:
                self.text += line
        return not times

    def send(self, number):
        os.kill(self.process.pid, number)

    def wait(self):
        self.listen()
        self.lines.close()
        self.process.join()
        self.code = self.process.exitcode

    def steps(self, *stages):
        return [int(step) for stage, step in self.stages if stage in stages]

    def expect(self, code, pattern=""):
        """Check its exit code, and its last line if a pattern is given."""
        line = (self.text.split("\n") or [""])[-2:][0]
        holds = self.code == code and (not pattern or re.search(f"^latent-tokens: .*({pattern})", line))
        assert holds, f"{self.folder.name}: ended with {self.code}, not {code} {pattern}: {self.text}"
