"""From a function that makes a program to a plan that can be run: `jit.compile`."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from antiphon.language import collectives
from antiphon.language._defaults import use
from antiphon.language.collectives import Collective
from antiphon.language.legacy import MSCCLPPProgram
from antiphon.language.program import CollectiveProgram
from antiphon.language.utils import AlgoSpec
from antiphon.plan import Constraint, ExecutionPlan, PlanHandle

__all__ = ["compile"]

ALIASES = {
    "world_size": ("world_size", "num_ranks", "num_gpus", "gpu_size", "nranks"),
    "nranks_per_node": ("nranks_per_node", "gpus_per_node"),
    "min_message_size": ("min_message_size", "min_msg_size"),
    "max_message_size": ("max_message_size", "max_msg_size"),
    "num_threads_per_block": ("num_threads_per_block",),
    "instances": ("instances",),
    "name": ("name",),
    "protocol": ("protocol",),
    "collective": ("collective",),
}
"""The arguments that compile takes, each with its aliases, by which functions may declare it too."""

CANONICAL = {alias: name for name, aliases in ALIASES.items() for alias in aliases}

OF_PROGRAMS = ("instances", "protocol", "num_threads_per_block", "min_message_size", "max_message_size")
"""The arguments of compile that hold for a program unless it gives them itself."""


def compile(
    algo: Callable[..., Any],
    name: str | None = None,
    collective: str | Collective | None = None,
    *,
    algo_spec: AlgoSpec | None = None,
    rank: int = 0,
    tags: Iterable[str] | Mapping[str, int] | None = None,
    **given: Any,
) -> PlanHandle:
    """The plan of the program that `algo` makes.

    `algo` is called with the parameters that it declares, by their names or aliases: `world_size` (`num_ranks`,
    `num_gpus`, `gpu_size`, `nranks`), `nranks_per_node` (`gpus_per_node`), `min_msg_size` and `max_msg_size`
    (`min_message_size`, `max_message_size`; bytes), `num_threads_per_block`, `instances`, `name`, `protocol`,
    `collective`; other keyword arguments are passed on under their own names. A parameter that is annotated as AlgoSpec, or
    called `spec` or `algo_spec`, gets a spec made of all these; a `collective` given by name is then in place, with a chunk
    factor of 1. `algo` returns the program, or the text of a plan. A given `algo_spec` is passed instead, as the first
    parameter if none is annotated or called so; the spec's `tags` and `nranks_per_node` are the handle's where others are not
    given. The handle's ExecutionPlan is the plan as rank `rank` uses it.

    What the program says itself wins over what is given here. The plan is kept in the cache folder under its `id`, a hash
    of what it says: `$ANTIPHON_CACHE_DIR`, else `$MSCCLPP_CACHE_DIR/antiphon`, else
    `$XDG_CACHE_HOME/antiphon`, else `~/.cache/antiphon`.

    Raises TypeError if `algo` cannot be called so, ValueError for a rank that the program does not have, and whatever the program
    raises.
    """
    if not callable(algo):
        raise TypeError(f"cannot compile {algo!r}: allowed a function that makes a program and returns it")
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in {"name": name, "collective": collective, **given}.items():
        if value is None:
            continue
        canonical = CANONICAL.get(key)
        if canonical is None:
            extra[key] = value
        elif known.setdefault(canonical, value) != value:
            raise TypeError(f"cannot compile with two values of {canonical}: saw {known[canonical]!r} and {value!r}")
    if tags is None:
        tags = algo_spec.tags if algo_spec else ()
    call = _arguments(algo, known, extra, algo_spec, tags)
    with use({key: known[key] for key in OF_PROGRAMS if key in known}):
        made = algo(*call.args, **call.kwargs)
    per_node = algo_spec.nranks_per_node if algo_spec else None
    return handle(algo, made, rank, tags, known.get("nranks_per_node", per_node))


def handle(
    algo: Callable[..., Any], made: object, rank: int, tags: Iterable[str] | Mapping[str, int], nranks_per_node: int | None
) -> PlanHandle:
    """The handle of what `algo` made, whose plan is kept in the cache; without `nranks_per_node` all ranks are of one node."""
    plan = _plan(algo, made)
    ranks = len(plan["gpus"])
    constraint = Constraint(ranks, ranks if nranks_per_node is None else nranks_per_node)
    kept = tags if isinstance(tags, Mapping) else set(tags)
    text = json.dumps(plan, separators=(",", ":"))
    # A selector that goes by tags or constraint must be able to tell two handles of one plan apart.
    said = json.dumps([text, sorted(map(str, kept)), constraint.world_size, constraint.n_ranks_per_node])
    id = hashlib.sha256(said.encode()).hexdigest()
    return PlanHandle(id, plan["name"], ExecutionPlan(_keep(id, text), rank), kept, constraint)


def _arguments(
    algo: Callable[..., Any],
    known: dict[str, Any],
    extra: dict[str, Any],
    spec: AlgoSpec | None,
    tags: Iterable[str] | Mapping[str, int],
) -> inspect.BoundArguments:
    """What `algo` is called with."""
    call = inspect.signature(algo).bind_partial()
    arguments, parameters = call.arguments, call.signature.parameters
    left = dict(extra)
    unnamed = None
    if spec and not any(_takes_spec(*parameter) for parameter in parameters.items()):
        unnamed = next((name for name in parameters if name not in left and name not in CANONICAL), None)
    for name, parameter in parameters.items():
        canonical = CANONICAL.get(name)
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments[name] = dict(left)
            left.clear()
        elif parameter.kind is parameter.VAR_POSITIONAL:
            if name == unnamed:
                arguments[name] = (spec,)
        elif name in left:
            arguments[name] = left.pop(name)
        elif name == unnamed or _takes_spec(name, parameter):
            arguments[name] = spec or _spec(known, tags)
        elif canonical in known:
            arguments[name] = known[canonical]
        elif parameter.default is parameter.empty:
            allowed = ", ".join(sorted({*known, *extra}))
            raise TypeError(f"cannot call {_name(algo)}: it needs {name!r}, saw {allowed or 'nothing'}; give {name}=")
    if left:
        raise TypeError(f"cannot call {_name(algo)}: it takes no {', '.join(sorted(left))}")
    return call


def _name(algo: Callable[..., Any]) -> str:
    return getattr(algo, "__name__", repr(algo))


def _takes_spec(name: str, parameter: inspect.Parameter) -> bool:
    note = parameter.annotation
    return name in ("spec", "algo_spec") or note is AlgoSpec or str(note).rpartition(".")[2] == "AlgoSpec"


def _spec(known: dict[str, Any], tags: Iterable[str] | Mapping[str, int]) -> AlgoSpec:
    missing = [key for key in ("name", "collective", "world_size") if key not in known]
    if missing:
        raise TypeError(f"cannot make an AlgoSpec: {', '.join(missing)} missing; give them, or algo_spec")
    collective, ranks = known["collective"], known["world_size"]
    if isinstance(collective, str):
        exported = [getattr(collectives, name) for name in collectives.__all__]
        classes = [kind for kind in exported if issubclass(kind, Collective)]
        named = [kind for kind in classes if kind.name == collective and kind not in (Collective, collectives.TestCollective)]
        if not named:
            raise ValueError(f"cannot make an AlgoSpec of collective {collective!r}: give a Collective, or algo_spec")
        collective = named[0](ranks, 1, True)
    options = {key: known[key] for key in OF_PROGRAMS[2:] if key in known}
    return AlgoSpec(
        name=known["name"],
        collective=collective,
        nranks_per_node=known.get("nranks_per_node", ranks),
        world_size=ranks,
        in_place=collective.inplace,
        instances=known.get("instances", 1),
        protocol=known.get("protocol", "Simple"),
        tags=dict(tags) if isinstance(tags, Mapping) else dict.fromkeys(tags, 1),
        **options,
    )


def _plan(algo: Callable[..., Any], made: object) -> dict[str, Any]:
    """The plan of what `algo` returned."""
    plan: Any = None
    if isinstance(made, (CollectiveProgram, MSCCLPPProgram)):
        made = made.to_json(indent=None)
    if isinstance(made, str):
        try:
            plan = json.loads(made)
        except ValueError:
            pass
    if isinstance(plan, dict) and "gpus" in plan:
        return plan
    raise TypeError(f"cannot compile what {_name(algo)} returned: saw {made!r:.80}, allowed its program, or JSON()")


def _keep(id: str, text: str) -> Path:
    """The file of the plan in the cache, written if it is not there."""
    folder = cache_folder()
    path = folder / f"{id}.json"
    if not path.exists():
        with written(path) as file:
            file.write_text(text, encoding="utf-8")
    return path


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """A file to write, which is then moved to `path`: whoever reads there meanwhile finds it whole or not at all. The process's
    umask says who may read it. Its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield file
        os.replace(file, path)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def cache_folder() -> Path:
    """The folder of kept plans."""
    if own := os.environ.get("ANTIPHON_CACHE_DIR"):
        return Path(own)
    if shared := os.environ.get("MSCCLPP_CACHE_DIR"):
        return Path(shared) / "antiphon"
    if (standard := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return standard / "antiphon"
    if (home := Path(os.environ.get("HOME", ""))).is_absolute():
        return home / ".cache" / "antiphon"
    raise RuntimeError(
        "cannot find the cache folder: saw none of ANTIPHON_CACHE_DIR and MSCCLPP_CACHE_DIR, and no absolute path in "
        "XDG_CACHE_HOME or HOME; set one"
    )
