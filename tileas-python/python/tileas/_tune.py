"""Tile sizes and options of a kernel for given arguments, tried by whoever has time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from . import _tileas
from ._errors import Error
from ._kernel import Jit, Kernel, Options, Picture, option_list


@dataclass(frozen=True)
class Look:
    """A configuration that was looked at."""

    values: dict[str, str]
    # Microseconds by the model; None: it does not work, and `error` says why.
    us: float | None
    binds: str | None
    error: str | None
    document: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Tuned:
    """What tuning came to."""

    # The kernel with the best tile sizes.
    text: str
    # The best options, as NAME=VALUE.
    options: list[str]
    # The best configuration.
    best: Look
    # All, in the order of looking.
    looks: list[Look]
    # Points of the space.
    points: int

    def plot(self) -> Picture:
        """All looks as a drawing."""
        documents = [json.dumps(look.document) for look in self.looks]
        return Picture(_tileas.plot("tune", documents), "svg")

    def json(self) -> str:
        """All looks as a document."""
        return json.dumps([look.document for look in self.looks], indent=2)

    def compile(self, **keywords: Any) -> Kernel:
        """The best configuration, as by :func:`tileas.compile`."""
        jit = Jit(keywords.pop("device", None), options=self.options, **keywords)
        return jit.compile(self.text)


# What a worker needs to know: text, kernel, axes, arguments, options, cache.
_Spec = tuple[str, str | None, tuple[str, ...], str, tuple[str, ...], str | None]


@lru_cache(maxsize=8)
def _tuner(spec: _Spec) -> _tileas.Tuner:
    text, kernel, axes, args, options, _ = spec
    return _tileas.Tuner(
        text, kernel, list(axes), [(n, v) for n, v in json.loads(args)], list(options)
    )


def _look(spec: _Spec, point: list[int]) -> str:
    """Looks at a point, in whatever process. With a cache, what was compiled is put there."""
    tuner = _tuner(spec)
    document = tuner.look(point)
    cache = spec[5]
    if cache is not None and json.loads(document)["time"] is not None:
        text, options = tuner.configuration(point)
        Jit(options=[*spec[4], *options], cache=cache).compile(text)
    return document


def tune(
    text: str,
    space: Mapping[str, Sequence[object]],
    args: Mapping[str, object],
    *,
    kernel: str | None = None,
    options: Options = None,
    budget: int | None = None,
    executor: Executor | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Tuned:
    """Chooses tile sizes and options.

    `space`: what may be changed. "bm=c.d0": extents of the tiles along dimension 0 of c, which `args` may call bm; the name of an option:
    its values. `args`: for a view its shape, else a number or an expression such as "ceildiv(a.d1, bk)". `budget`: points looked at; by
    default a fifth of the space. `executor`: any of `concurrent.futures`, for instance that of a Dask client; the answer is the same. `progress` is called
    with points done, points to do at most, best microseconds.
    """
    axes = tuple(f"{name}{':' if '.d' in name else '='}{','.join(map(str, values))}" for name, values in space.items())
    listed = [(name, list(value) if isinstance(value, (tuple, list)) else value) for name, value in args.items()]
    given = tuple(option_list(options))
    folder = None if cache is None else os.fspath(cache)
    spec: _Spec = (text, kernel, axes, json.dumps(listed), given, folder)
    tuner = _tuner(spec)
    search = _tileas.Search(tuner, budget)
    limit = tuner.points if budget is None else budget
    looks: list[Look] = []
    while batch := search.next_batch():
        if executor is None:
            documents = [_look(spec, point) for point in batch]
        else:
            futures = [executor.submit(_look, spec, point) for point in batch]
            documents = [future.result() for future in futures]
        for document in documents:
            search.tell(document)
            looks.append(_read(document))
            if progress is not None:
                best = min((look.us for look in looks if look.us is not None), default=float("inf"))
                progress(len(looks), limit, best)
    best_point = search.best
    if best_point is None:
        why = next((look.error for look in looks if look.error), "")
        raise Error("E1404", f"none of {len(looks)} configurations works; the first: {why}")
    best_look = next(look for look in looks if look.document["point"] == best_point)
    best_text, best_options = tuner.configuration(best_point)
    return Tuned(best_text, [*given, *best_options], best_look, looks, tuner.points)


def _read(document: str) -> Look:
    read = json.loads(document)
    time = read["time"]
    return Look(
        dict(read["values"]),
        None if time is None else time["us"],
        None if time is None else time["binds"],
        read["error"],
        read,
    )
