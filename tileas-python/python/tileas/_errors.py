"""What goes wrong: one class, stable codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Codes of this package, beside those of the compiler, the launch and the JIT.
CODES = {
    "E1401": "object that is no array, number or tensor",
    "E1402": "array whose memory cannot be used as asked",
    "E1403": "kernel, grid, stream or device that is not what is wanted",
    "E1404": "space in which no configuration works",
}


@dataclass(frozen=True)
class Entry:
    """One thing that is wrong. Lines and columns count from 1; 0: not known."""

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    notes: tuple[str, ...] = ()


class Error(Exception):
    """Why there is no kernel, or no result."""

    code: str
    message: str
    errors: list[Entry]

    def __init__(
        self,
        code: str,
        message: str,
        entries: Iterable[tuple[str, str, str, int, int, Iterable[str]]] = (),
    ) -> None:
        self.code = code
        self.message = message
        self.errors = [Entry(*row[:5], tuple(row[5])) for row in entries]
        if not self.errors:
            self.errors = [Entry(code, message)]
        super().__init__(message if message.startswith(code) else f"{code}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        rows = [
            (e.code, e.message, e.file, e.line, e.column, e.notes) for e in self.errors
        ]
        return (Error, (self.code, self.message, rows))
