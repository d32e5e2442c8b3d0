"""`python -m antiphon compile`: runs a program file and writes the plan of the last program it makes."""

import os
import sys
import traceback
import types
from dataclasses import dataclass, field

from antiphon import _native

USAGE = """\
usage: python -m antiphon compile [options] prog.py [arguments of the program]

Runs prog.py as Python does, with its arguments in sys.argv, and writes the plan of the last program that it makes.
In the meantime JSON() returns a line that names the output file, since the plan is written there.

options (anywhere; after `--` everything belongs to the program):
  -o, --output FILE  the file to write (required)
  --compact          one line without white space, instead of indentation by two spaces
  --compatible       synchronise as the format's own DSL does, rather than only where it must be
  --report           say on standard error what the passes did
  -h, --help         this text
"""


class UsageError(Exception):
    """A command line that says too little or too much."""


@dataclass
class Options:
    """What the command line asks for."""

    output: str | None = None
    compact: bool = False
    compatible: bool = False
    report: bool = False
    help: bool = False
    program: list[str] = field(default_factory=list)
    """The program's file and its arguments."""


def parse(arguments: list[str]) -> Options:
    """The options; those that are not of the command belong to the program, in their order."""
    options = Options()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            options.program.extend(rest)
        elif name in ("-o", "--output"):
            file = value if equals else next(rest, None)
            if not file:
                raise UsageError(f"{name} needs the name of a file")
            options.output = file
        elif argument in ("--compact", "--compatible", "--report"):
            setattr(options, argument[2:], True)
        elif argument in ("-h", "--help") and not options.program:
            options.help = True
        elif argument.startswith("-") and argument != "-" and not options.program:
            raise UsageError(f"unknown option {argument}")
        else:
            options.program.append(argument)
    return options


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit status."""
    try:
        options = parse(arguments)
        if options.help:
            print(USAGE, end="")
            return 0
        if not options.program:
            raise UsageError("no program to compile")
        if options.output is None:
            raise UsageError("no file to write; give -o FILE")
    except UsageError as error:
        print(f"cannot compile: {error}\n\n{USAGE}", file=sys.stderr, end="")
        return 2
    note = f"the plan is written to {options.output}"
    _native.begin_compile(note, options.compatible)
    try:
        return run(options.program) or write(options, options.output)
    finally:
        _native.end_compile()


def run(program: list[str]) -> int:
    """Runs a program's file with its arguments, as the main module; returns its exit status."""
    path = program[0]
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"cannot compile {path}: {error.strerror}", file=sys.stderr)
        return 2
    module = types.ModuleType("__main__")
    module.__file__ = path
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv = list(program)
    # Python puts the folder of a program's file first, in place of what it puts there for `-m`.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.modules["__main__"] = module
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - shown as Python itself would, from the program's first line on
        lines = error.__traceback__ and error.__traceback__.tb_next
        traceback.print_exception(type(error), error, lines)
        return 1
    finally:
        sys.stdout.flush()
        sys.argv, sys.path[:], sys.modules["__main__"] = before
    return 0


def write(options: Options, output: str) -> int:
    """Writes the plan of the last program; returns the exit status."""
    program = options.program[0]
    try:
        report = _native.write_compiled(output, options.compact)
    except LookupError:
        print(f"cannot compile {program}: it makes no CollectiveProgram", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot write {output}: {error.strerror}", file=sys.stderr)
        return 1
    except (RuntimeError, ValueError) as error:
        print(f"cannot compile {program}: {error}", file=sys.stderr)
        return 1
    if options.report:
        print(report, file=sys.stderr)
    return 0
