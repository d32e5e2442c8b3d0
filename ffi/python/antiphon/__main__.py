"""The command `python -m antiphon`."""

import sys
from collections.abc import Callable

from antiphon import _compile, _install


def _executor_test(arguments: list[str]) -> int:
    from antiphon.executor_test import main

    return main(arguments)


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "compile": (_compile.main, "compile a program file to a plan"),
    "executor_test": (_executor_test, "check and time a plan, with the flags of the format's own test"),
    "install": (_install.main, "write the default plans into the cache, or have plans serve calls"),
}

OTHER_NAMES = {"--install": "install"}
"""What the format's own package calls a command."""


def main(arguments: list[str]) -> int:
    """Runs the command that `arguments` name; returns the exit status."""
    name, *rest = arguments or ["--help"]
    name = OTHER_NAMES.get(name, name)
    if name in ("-h", "--help"):
        print("usage: python -m antiphon COMMAND [...]\n\ncommands:")
        for command, (_, help_text) in COMMANDS.items():
            print(f"  {command:12} {help_text}")
        return 0
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        print(f"cannot run command {name!r}: allowed {known}", file=sys.stderr)
        return 2
    return COMMANDS[name][0](rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
