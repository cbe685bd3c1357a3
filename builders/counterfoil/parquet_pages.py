"""Measure the columns of a Parquet file before anything decodes them.

A library takes as much memory as a page's own header says, and the totals in the file's footer may say less. pyarrow
ends the whole process if a column of the footer has no description. So the footer and the headers are read here, in
Thrift's compact protocol. The format is that of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Any

from counterfoil.regular_files import UnfitFile

# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_ROW_GROUPS, _COLUMNS, _ROWS, _DESCRIPTION = 4, 1, 3, 3
_PATH, _NUMBERS, _ALL_UNFOLDED, _ALL_FOLDED, _DATA_AT, _DICTIONARY_AT = 3, 5, 6, 7, 9, 11
# Fields of PageHeader, and of the headers inside it.
_TYPE, _UNFOLDED, _FOLDED, _DATA, _DICTIONARY, _DATA_2 = 1, 2, 3, 5, 7, 8
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4
_DICTIONARY_PAGE = 2
# Encodings of texts that are not read. pyarrow makes no dictionary of the first. In the second, a text repeats the one
# before it, so that pages of some bytes hold texts without bound.
_UNREAD = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
_LONGEST_HEADER = 1 << 16
_LONGEST_FOOTER = 1 << 24
_MAGIC = b"PAR1"
_MOST_PAGES = 100_000
_MOST_DEPTH = 16
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of a row group, as the footer describes it. path: with dots. folded: its bytes in the file."""

    path: str
    rows: int
    values: int
    unfolded: int
    folded: int
    offset: int


@dataclass(frozen=True, slots=True)
class Pages:
    """What decoding a column's pages takes. unfolded: their bytes without compression. values: with those of lists."""

    unfolded: int
    values: int


def read_chunks(file: IO[bytes]) -> list[Chunk]:
    """Read the columns of every row group from a file's footer. Raise UnfitFile if it is damaged or vast."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] != _MAGIC or length > size - 8:
        raise UnfitFile("is no Parquet file, or is cut off")
    if length > _LONGEST_FOOTER:
        raise UnfitFile(f"has a description of {length:,} bytes, expected at most {_LONGEST_FOOTER:,}")
    file.seek(size - 8 - length)
    chunks = []
    try:
        footer, _ = read_struct(file.read(length))
        for group in footer.get(_ROW_GROUPS, []):
            for column in group[_COLUMNS]:
                described = column[_DESCRIPTION]
                offsets = [described[field] for field in (_DATA_AT, _DICTIONARY_AT) if field in described]
                chunks.append(
                    Chunk(
                        b".".join(described[_PATH]).decode(),
                        _integer(group[_ROWS]),
                        _integer(described[_NUMBERS]),
                        _integer(described[_ALL_UNFOLDED]),
                        _integer(described[_ALL_FOLDED]),
                        # Some writers give 0 for no dictionary.
                        min(_integer(offset) or size for offset in offsets),
                    )
                )
    except (IndexError, KeyError, AttributeError, TypeError, ValueError):
        raise UnfitFile("has a damaged description") from None
    return chunks


def measure_pages(file: IO[bytes], chunk: Chunk) -> Pages:
    """Measure the pages of a column. Raise UnfitFile for a damaged one."""
    name = chunk.path
    offset, end = chunk.offset, chunk.offset + chunk.folded
    unfolded = values = pages = 0
    damaged = UnfitFile(f"has damaged pages in its column {name[:40]!r}")
    # A reader stops when it has all values, and a writer may leave bytes after them.
    while offset < end and values < chunk.values:
        if pages == _MOST_PAGES:
            raise damaged
        file.seek(offset)
        try:
            header, length = read_struct(file.read(min(_LONGEST_HEADER, end - offset)))
            size = _integer(header.get(_UNFOLDED))
            folded = _integer(header.get(_FOLDED))
            if header.get(_TYPE) == _DICTIONARY_PAGE:
                texts = _integer(header[_DICTIONARY].get(_VALUES))
                # Each text has a length, so a dictionary has more bytes than texts.
                if texts > size:
                    raise damaged
            for field, encoding in ((_DATA, _ENCODING), (_DATA_2, _ENCODING_2)):
                if field in header:
                    values += _integer(header[field].get(_VALUES))
                    if (unread := _UNREAD.get(header[field].get(encoding))) is not None:
                        raise UnfitFile(
                            f"has the column {name[:40]!r} in the encoding {unread}, which is not read: save it in"
                            " PLAIN"
                        )
        except (IndexError, KeyError, AttributeError, TypeError, ValueError):
            raise damaged from None
        unfolded += size
        offset += length + folded
        pages += 1
    return Pages(unfolded, values)


def _integer(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def read_struct(content: bytes) -> tuple[dict[int, Any], int]:
    """Read a struct of Thrift: its fields by number, and its length. IndexError or ValueError if it is none."""
    reader = _Reader(content)
    return reader.struct(0), reader.offset


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.offset = 0

    def _byte(self) -> int:
        self.offset += 1
        return self.content[self.offset - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            step = head >> 4
            number = number + step if step else self._zigzag()
            fields[number] = self._value(head & 0x0F, depth)
        return fields

    def _value(self, type: int, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ValueError
        if type in (_TRUE, _FALSE):
            return type == _TRUE
        if type == _BYTE:
            return self._byte()
        if type in _INTEGERS:
            return self._zigzag()
        if type == _DOUBLE:
            return self._bytes(8)
        if type == _BINARY:
            return self._bytes(self._varint())
        if type == _LIST:
            return self._list(depth)
        if type == _STRUCT:
            return self.struct(depth + 1)
        # Parquet has no sets or maps.
        raise ValueError

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count, type = head >> 4, head & 0x0F
        if count == 15:
            count = self._varint()
        # Each value takes a byte at least, also a truth value, which has none in a field.
        if count > len(self.content) - self.offset:
            raise ValueError
        type = _BYTE if type in (_TRUE, _FALSE) else type
        return [self._value(type, depth + 1) for _ in range(count)]

    def _bytes(self, length: int) -> bytes:
        self.offset += length
        if self.offset > len(self.content):
            raise IndexError
        return self.content[self.offset - length : self.offset]
