"""A reader of GGUF files, version 3 (and 2, which has the same layout): what they say, and where tensors lie.

Written from the format's public description (ggml, docs/gguf.md): little-endian; a header, key-value pairs,
tensor descriptions, then tensors, aligned.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
_PLAIN = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
"""struct's names of the types of values; 8 is a string, 9 an array."""
_STRING, _ARRAY = 8, 9
T = TypeVar("T")
_MOST = 1 << 24
"""Values in one array, dimensions and so on: more is damage, not data."""


class GgufError(ValueError):
    """The file is no GGUF, is damaged, or has something in it that we cannot use. Says where."""


@dataclass(frozen=True)
class Tensor:
    """``shape`` as numpy has it (rows first); ``kind`` is ggml's number of the quantisation; ``offset``:
    bytes from the file's begin."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def count(self) -> int:
        """Numbers in it."""
        product = 1
        for size in self.shape:
            product *= size
        return product


@dataclass(frozen=True)
class Gguf:
    """``said``: key-value pairs; ``tensors`` by name, in the file's order; ``data``: the whole file."""

    said: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    data: memoryview

    @classmethod
    def of(cls, data: bytes) -> Gguf:
        """Raises GgufError."""
        cursor = _Cursor(memoryview(data))
        if bytes(cursor.take(4)) != MAGIC:
            raise GgufError(f"no GGUF file: it begins with {data[:4]!r}, not {MAGIC!r}")
        if (version := cursor.number("<I")) not in VERSIONS:
            raise GgufError(f"GGUF of version {version}; {' and '.join(map(str, VERSIONS))} can be read")
        tensors, pairs = cursor.size(), cursor.size()
        said = dict(cursor.pair() for _ in range(pairs))
        found = [cursor.tensor() for _ in range(tensors)]
        step = said.get("general.alignment", ALIGNMENT)
        if not isinstance(step, int) or step < 1:
            raise GgufError(f"general.alignment must be a number above 0, got {step!r:.80}")
        begin = -(-cursor.at // step) * step
        placed = [Tensor(t.name, t.shape, t.kind, t.offset + begin) for t in found]
        return cls(said, {tensor.name: tensor for tensor in placed}, cursor.data)

    def value(self, key: str, kind: type[T]) -> T:
        """What the file says under ``key``. Raises GgufError if it does not, or says something else."""
        if key not in self.said:
            raise GgufError(f"the file does not say {key}")
        if not isinstance(found := self.said[key], kind):
            raise GgufError(f"{key} must be of type {kind.__name__}, got {found!r:.80}")
        return found

    def texts(self, key: str) -> list[str]:
        """An array of strings. Raises GgufError."""
        found = self.value(key, list)
        if any(not isinstance(text, str) for text in found):
            raise GgufError(f"{key} must be an array of strings")
        return found

    def bytes_of(self, tensor: Tensor, size: int) -> memoryview:
        """``size`` bytes of a tensor. Raises GgufError if the file is too short."""
        end = tensor.offset + size
        if end > len(self.data):
            raise GgufError(f"tensor {tensor.name} ends at byte {end}, the file at {len(self.data)}")
        return self.data[tensor.offset : end]


class _Cursor:
    """Reads from the begin on; ``at`` bytes are read."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self.data):
            raise GgufError(f"the file ends at byte {len(self.data)}, in the middle of its header")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def size(self) -> int:
        """A count or a length."""
        at, found = self.at, int(self.number("<Q"))
        if found > _MOST:
            raise GgufError(f"byte {at}: {found} is too many")
        return found

    def string(self) -> str:
        at, raw = self.at, bytes(self.take(self.size()))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise GgufError(f"byte {at}: a text that is no UTF-8 ({error.reason})") from None

    def pair(self) -> tuple[str, Any]:
        return self.string(), self.value(self.number("<I"))

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.number("<I"), self.size()
            if inner in _PLAIN:
                form = f"<{count}{_PLAIN[inner][1]}"
                return list(struct.unpack(form, self.take(struct.calcsize(form))))
            if inner == _STRING:
                return [self.string() for _ in range(count)]
            kind = inner
        if kind not in _PLAIN:
            raise GgufError(f"byte {self.at}: a value of the unknown type {kind}")
        return self.number(_PLAIN[kind])

    def tensor(self) -> Tensor:
        """Its offset is still from where the tensors begin."""
        name, dimensions = self.string(), self.number("<I")
        if not 1 <= dimensions <= 4:
            raise GgufError(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(self.size() for _ in range(dimensions))
        return Tensor(name, shape[::-1], self.number("<I"), self.number("<Q"))
