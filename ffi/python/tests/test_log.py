"""Lines of the library's log in the program's `logging`."""

import os
import subprocess
import sys

import pytest
from ranks import LIMIT

import antiphon
from antiphon.errors import InvalidArgumentError

SAYS = " does nothing: saw 'maybe', allowed 0 or 1; correct it".replace("'", '"')
"""What the library warns of, once in a process for each variable."""

HEAD = """
import logging, os, sys, threading
import antiphon

class Kept(logging.Handler):
    def emit(self, record):
        kept.append((record.levelname, record.getMessage(), record.threadName))

def warn_of(variable):
    os.environ[variable] = "maybe"
    antiphon.Communicator.in_process(1)[0].close()
    del os.environ[variable]

kept = []
logger = logging.getLogger("antiphon")
logger.addHandler(Kept())
logger.propagate = False
antiphon.log_to(logger)
"""


def run(code, **said):
    """What a process prints to each of its two outputs."""
    environment = {**os.environ, "ANTIPHON_LOG": "warn", **said}
    ended = subprocess.run(
        [sys.executable, "-c", HEAD + code], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def test_lines_go_to_the_logger_and_back_to_standard_error():
    out, err = run("""
warn_of("ANTIPHON_REPRODUCIBLE")
antiphon.log_to(None)
print(kept)
warn_of("ANTIPHON_LEGACY_IPC")
print(len(kept), threading.active_count())
""")
    line = ("WARNING", f"ANTIPHON_REPRODUCIBLE{SAYS}", "antiphon-log")
    assert out == f"{[line]}\n1 1\n"
    assert err.count("\n") == 1 and err.endswith(f" WARN ANTIPHON_LEGACY_IPC{SAYS}\n"), err


def test_the_last_lines_are_handed_on_when_the_interpreter_ends():
    out, err = run("""
import atexit
class Slow(logging.Handler):
    def emit(self, record):
        assert ends.wait(60)
        threading.Event().wait(0.3)  # As a handler may that writes over a network.
        print(record.getMessage(), flush=True)
ends = threading.Event()
logger.addHandler(Slow())
warn_of("ANTIPHON_REPRODUCIBLE")
warn_of("ANTIPHON_LEGACY_IPC")
atexit.register(ends.set)
""")
    # For the first `logging` itself waits, since it is being handled.
    assert (out, err) == (f"ANTIPHON_REPRODUCIBLE{SAYS}\nANTIPHON_LEGACY_IPC{SAYS}\n", "")


def test_another_logger_takes_the_place_and_the_level_is_the_loggers():
    out, err = run("""
other = logging.getLogger("other")
other.addHandler(Kept())
other.setLevel(logging.ERROR)
other.propagate = False
antiphon.log_to(other)
warn_of("ANTIPHON_REPRODUCIBLE")
antiphon.log_to(logger)
warn_of("ANTIPHON_LEGACY_IPC")
antiphon.log_to(None)
print([text for _, text, _ in kept])
""")
    assert (out, err) == (f"{[f'ANTIPHON_LEGACY_IPC{SAYS}']}\n", "")


def test_a_handler_may_use_the_package_and_fail():
    out, err = run("""
class Calls(logging.Handler):
    def emit(self, record):
        if "REPRODUCIBLE" in record.getMessage():
            warn_of("ANTIPHON_LEGACY_IPC")
            done.set()
            raise ValueError("the disk is full")
done = threading.Event()
logger.addHandler(Calls())
warn_of("ANTIPHON_REPRODUCIBLE")
assert done.wait(60)
antiphon.log_to(None)
print([text for _, text, _ in kept])
""")
    assert out == f"{[f'ANTIPHON_REPRODUCIBLE{SAYS}', f'ANTIPHON_LEGACY_IPC{SAYS}']}\n"
    assert "ValueError: the disk is full" in err


def test_a_handler_may_set_another_logger():
    out, err = run("""
class Ends(logging.Handler):
    def emit(self, record):
        antiphon.log_to(None)
        done.set()
done = threading.Event()
logger.addHandler(Ends())
warn_of("ANTIPHON_REPRODUCIBLE")
assert done.wait(60)
print(len(kept))
""")
    assert (out, err) == ("1\n", "")


def test_no_call_waits_for_a_handler():
    out, _ = run("""
class Waits(logging.Handler):
    def emit(self, record):
        begun.set()
        assert over.wait(60)
begun, over = threading.Event(), threading.Event()
logger.addHandler(Waits())
warn_of("ANTIPHON_REPRODUCIBLE")
assert begun.wait(60)
warn_of("ANTIPHON_LEGACY_IPC")
over.set()
antiphon.log_to(None)
print(len(kept))
""")
    assert out == "2\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_writes_to_standard_error_until_it_has_a_logger():
    out, err = run("""
import warnings
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    warn_of("ANTIPHON_REPRODUCIBLE")
    antiphon.log_to(logger)
    warn_of("ANTIPHON_LEGACY_IPC")
    antiphon.log_to(None)
    print([text for _, text, _ in kept], flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(len(kept))
""")
    assert out == f"{[f'ANTIPHON_LEGACY_IPC{SAYS}']}\n0\n"
    assert err.count("\n") == 1 and err.endswith(f" WARN ANTIPHON_REPRODUCIBLE{SAYS}\n"), err


@pytest.mark.parametrize("logger", ["antiphon", 7, print])
def test_what_is_no_logger_is_refused(logger):
    with pytest.raises(InvalidArgumentError, match="cannot log to"):
        antiphon.log_to(logger)


def test_an_adapter_is_a_logger():
    out, err = run("""
antiphon.log_to(logging.LoggerAdapter(logger, {}))
warn_of("ANTIPHON_REPRODUCIBLE")
antiphon.log_to(None)
print([text for _, text, _ in kept])
""")
    assert (out, err) == (f"{[f'ANTIPHON_REPRODUCIBLE{SAYS}']}\n", "")


def test_lines_go_to_standard_error_where_no_thread_can_be_started():
    out, err = run("""
def start(self):
    raise RuntimeError("can't start new thread")
own, threading.Thread.start = threading.Thread.start, start
try:
    antiphon.log_to(logging.getLogger("other"))
except RuntimeError as error:
    print(error)
threading.Thread.start = own
warn_of("ANTIPHON_REPRODUCIBLE")
antiphon.log_to(logger)
warn_of("ANTIPHON_LEGACY_IPC")
antiphon.log_to(None)
print([text for _, text, _ in kept])
""")
    assert out == f"can't start new thread\n{[f'ANTIPHON_LEGACY_IPC{SAYS}']}\n"
    assert err.count("\n") == 1 and err.endswith(f" WARN ANTIPHON_REPRODUCIBLE{SAYS}\n"), err


def test_a_handler_that_ends_its_thread_gives_the_lines_back():
    out, err = run("""
class Ends(logging.Handler):
    def emit(self, record):
        sys.exit()
logger.addHandler(Ends())
(thread,) = (thread for thread in threading.enumerate() if thread.name == "antiphon-log")
warn_of("ANTIPHON_REPRODUCIBLE")
thread.join(60)
warn_of("ANTIPHON_LEGACY_IPC")
print(len(kept), thread.is_alive())
""")
    assert out == "1 False\n"
    assert err.count("\n") == 1 and err.endswith(f" WARN ANTIPHON_LEGACY_IPC{SAYS}\n"), err


def test_the_logger_of_somebody_else_stays_when_the_interpreter_ends():
    out, err = run("""
import ctypes
from antiphon import _abi, _log
from antiphon._library import library
def take(context, level, text):
    print("somebody else:", text.decode())
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)(take)
(thread,) = (thread for thread in threading.enumerate() if thread.name == "antiphon-log")
assert not library().antiphon_set_logger(ctypes.cast(function, ctypes.c_void_p), None, _abi.DESTROY())
thread.join(60)
_log._end()
warn_of("ANTIPHON_REPRODUCIBLE")
assert not library().antiphon_set_logger(None, None, _abi.DESTROY())
""")
    assert (out, err) == (f"somebody else: ANTIPHON_REPRODUCIBLE{SAYS}\n", "")
