"""Measure the columns of a Parquet file before anything decodes them.

A library takes as much memory as a page's own header says, and the totals in the file's footer may
say less. pyarrow ends the whole process if a column of the footer has no description. So the footer
and the headers are read here, in Thrift's compact protocol. The format is that of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Any

from counterfoil.regular_files import UnfitFile

# The compressions by number.
_CODINGS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_ROW_GROUPS = 4
_COLUMNS = 1
_ROWS = 3
_DESCRIPTION = 3
_PATH = 3
_CODING = 4
_NUMBERS = 5
_ALL_UNFOLDED = 6
_ALL_FOLDED = 7
_DATA_AT = 9
_DICTIONARY_AT = 11
# Fields of PageHeader, and of the headers inside it.
_TYPE = 1
_UNFOLDED = 2
_FOLDED = 3
_DATA = 5
_DICTIONARY = 7
_DATA_2 = 8
_VALUES = 1
_ENCODING = 2
_ENCODING_2 = 4
_DICTIONARY_PAGE = 2
_NUMBERED = (2, 8)  # the encodings PLAIN_DICTIONARY and RLE_DICTIONARY
# Encodings of texts that are not read. pyarrow makes no dictionary of the first. In the second, a
# text repeats the one before it, so that pages of some bytes hold texts without bound.
_UNREAD = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
_USUAL_HEADER = 1 << 8
_LONGEST_HEADER = 1 << 16
_LONGEST_FOOTER = 1 << 24
_MAGIC = b"PAR1"
_MOST_PAGES = 100_000
_MOST_DEPTH = 16
_TRUE = 1
_FALSE = 2
_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_STRUCT = 12
_INTEGERS = (4, 5, 6)


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column of a row group, as the footer describes it. path: with dots. folded: its bytes in
    the file.

    coding: its compression, such as "SNAPPY".
    """

    path: str
    coding: str
    rows: int
    values: int
    unfolded: int
    folded: int
    offset: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The memory that decoding a column's pages takes.

    unfolded: their bytes without compression. values: their number, with the values of lists.
    numbered: values that are numbers of entries of the dictionary. dictionary: its bytes without
    compression.
    """

    unfolded: int
    values: int
    numbered: int
    dictionary: int


def read_chunks(file: IO[bytes]) -> list[ColumnChunk]:
    """Read the columns of every row group from a file's footer. Raise UnfitFile if it is damaged or
    vast."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] != _MAGIC or length > size - 8:
        raise UnfitFile("is no Parquet file, or is cut off")
    if length > _LONGEST_FOOTER:
        raise UnfitFile(
            f"has a description of {length:,} bytes, expected at most {_LONGEST_FOOTER:,}"
        )
    file.seek(size - 8 - length)
    chunks = []
    try:
        footer, _ = read_struct(file.read(length))
        for group in footer.get(_ROW_GROUPS, []):
            for column in group[_COLUMNS]:
                described = column[_DESCRIPTION]
                offsets = []
                for field in (_DATA_AT, _DICTIONARY_AT):
                    if field in described:
                        # Some writers give 0 for no dictionary.
                        offsets.append(_integer(described[field]) or size)
                chunk = ColumnChunk(
                    path=b".".join(described[_PATH]).decode(),
                    coding=_CODINGS[_integer(described[_CODING])],
                    rows=_integer(group[_ROWS]),
                    values=_integer(described[_NUMBERS]),
                    unfolded=_integer(described[_ALL_UNFOLDED]),
                    folded=_integer(described[_ALL_FOLDED]),
                    offset=min(offsets),
                )
                chunks.append(chunk)
    except (IndexError, KeyError, AttributeError, TypeError, ValueError):
        raise UnfitFile("has a damaged description") from None
    return chunks


def measure_pages(file: IO[bytes], chunk: ColumnChunk) -> Pages:
    """Measure the pages of a column. Raise UnfitFile for a damaged one."""
    shown = repr(chunk.path[:40])
    offset = chunk.offset
    end = offset + chunk.folded
    unfolded = values = pages = numbered = dictionary = 0
    damaged = UnfitFile(f"has damaged pages in its column {shown}")
    # A reader stops when it has all values, and a writer may leave bytes after them.
    while offset < end and values < chunk.values:
        if pages == _MOST_PAGES:
            raise damaged
        file.seek(offset)
        try:
            header, length = _header(file, end - offset)
            size = _integer(header.get(_UNFOLDED))
            folded = _integer(header.get(_FOLDED))
            if header.get(_TYPE) == _DICTIONARY_PAGE:
                texts = _integer(header[_DICTIONARY].get(_VALUES))
                # Each text has a length, so a dictionary has more bytes than texts.
                if texts > size:
                    raise damaged
                dictionary = size
            for field, encoding in ((_DATA, _ENCODING), (_DATA_2, _ENCODING_2)):
                if field in header:
                    of_data = header[field]
                    count = _integer(of_data.get(_VALUES))
                    coding = of_data.get(encoding)
                    values += count
                    if coding in _NUMBERED:
                        numbered += count
                    if coding in _UNREAD:
                        raise UnfitFile(
                            f"has the column {shown} in the encoding {_UNREAD[coding]}, which is"
                            " not read: save it in PLAIN"
                        )
        except (IndexError, KeyError, AttributeError, TypeError, ValueError):
            raise damaged from None
        unfolded += size
        offset += length + folded
        pages += 1
    return Pages(unfolded, values, numbered, dictionary)


def _header(file: IO[bytes], most: int) -> tuple[dict[int, Any], int]:
    """Read the header of a page where the file is, and its length. Raise IndexError or ValueError
    for other bytes."""
    # Most headers are short. Long ones have the least and the largest text of the page.
    content = file.read(min(_USUAL_HEADER, most))
    try:
        return read_struct(content)
    except IndexError:
        left = min(_LONGEST_HEADER, most) - len(content)
        return read_struct(content + file.read(left))


def _integer(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def read_struct(content: bytes) -> tuple[dict[int, Any], int]:
    """Read a struct of Thrift: its fields by number, and its length. Raise IndexError or ValueError
    for other bytes.

    The functions share `offset` and call no methods, because a footer has thousands of values.
    """
    offset = 0
    size = len(content)

    def varint() -> int:
        nonlocal offset
        byte = content[offset]
        offset += 1
        value = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            byte = content[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise ValueError
        return value

    def struct(depth: int) -> dict[int, Any]:
        nonlocal offset
        fields: dict[int, Any] = {}
        number = 0
        while head := content[offset]:
            offset += 1
            step = head >> 4
            number = number + step if step else _signed(varint())
            fields[number] = value(head & 0x0F, depth)
        offset += 1
        return fields

    def value(type: int, depth: int) -> Any:
        nonlocal offset
        if type in _INTEGERS:
            return _signed(varint())
        if type in (_BINARY, _DOUBLE):
            length = varint() if type == _BINARY else 8
            start = offset
            offset += length
            if offset > size:
                raise IndexError
            return content[start:offset]
        if type in (_TRUE, _FALSE):
            return type == _TRUE
        if depth == _MOST_DEPTH:
            raise ValueError
        if type == _STRUCT:
            return struct(depth + 1)
        if type == _LIST:
            return values(depth + 1)
        if type != _BYTE:  # Parquet has no sets or maps
            raise ValueError
        offset += 1
        return content[offset - 1]

    def values(depth: int) -> list[Any]:
        nonlocal offset
        head = content[offset]
        offset += 1
        count = head >> 4
        type = head & 0x0F
        if count == 15:
            count = varint()
        # Each value takes a byte at least, also a truth value, which has none in a field.
        if count > size - offset:
            raise ValueError
        type = _BYTE if type in (_TRUE, _FALSE) else type
        return [value(type, depth) for _ in range(count)]

    return struct(0), offset


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
