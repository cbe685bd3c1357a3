"""The kind of cases about tar files: a shard with other members, names, kinds, sizes and
documents."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable

from fuzzing.cases import NAME, Bench, Prepared
from fuzzing.commands import on_the_dataset
from fuzzing.pictures import odd_picture
from fuzzing.templates import TAR
from fuzzing.trees import json_text
from fuzzing.values import as_bytes, json_fragment, odd_value

Members = list[tuple[tarfile.TarInfo, bytes]]

_KINDS = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
    tarfile.DIRTYPE,
    tarfile.CONTTYPE,
    b"Z",
)
_LABELS = (
    b"",
    b"-1",
    b"x",
    b"99",
    b"1.5",
    b" 0 ",
    b"\xff",
    "٣".encode(),
    b"9" * 5_000,
    b"1_0",
    b"9" * 18,
)
_HEADERS = (
    "path",
    "size",
    "linkpath",
    "mtime",
    "GNU.sparse.major",
    "GNU.sparse.realsize",
    "GNU.sparse.map",
    "hdrcharset",
    "x",
)
_HEADER_VALUES = ("-1", "x", "0", str(2**40), "9" * 30, "../../x", "1,2,3", "BINARY", "")
# Where a header holds its name, size, time and kind, and what they could be.
_FIELDS = (
    (124, b"77777777777\0"),
    (124, b"-0000000001\0"),
    (124, b"\x80" + b"\0" * 3 + b"\xff" * 8),
    (124, b"zzzzzzzzzzz\0"),
    (156, b"x"),
    (156, b"g"),
    (156, b"L"),
    (156, b"S"),
    (156, b"K"),
    (0, b"../../x\0"),
    (0, b"\0"),
    (0, b"\xff\xfe"),
    (136, b"99999999999\0"),
)


def archive(bench: Bench) -> Prepared:
    """Make one to three changes to the members of one shard."""
    chance = bench.chance
    directory = bench.copy(TAR)
    path = chance.choice(sorted(directory.rglob("*.tar")))
    bench.tell(f"{path.relative_to(directory).as_posix()}:")
    with tarfile.open(path) as tar:
        members = [(member, _content(tar, member)) for member in tar]
    for _ in range(chance.choice((1, 1, 2, 3))):
        members = chance.choice(_CHANGES)(members, bench) if members else members
    content = _written(members)
    draw = chance.random()
    if draw < 0.04:
        bench.tell("gzip")
        content = gzip.compress(content)
    elif draw < 0.08:
        position = chance.randrange(len(content) // 512) * 512
        bench.tell(f"cut at {position}")
        content = content[:position]
    elif draw < 0.2:
        content = _with_odd_header(content, bench)
    path.write_bytes(content)
    return on_the_dataset(bench, 0.75)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    return b"" if stream is None else stream.read()


def _chosen(members: Members, bench: Bench, suffix: str = "") -> int:
    """Return the index of a member with this suffix, or of any."""
    places = [index for index, (member, _) in enumerate(members) if member.name.endswith(suffix)]
    return bench.chance.choice(places or [0])


def _with_content(members: Members, index: int, content: bytes) -> Members:
    return [*members[:index], (members[index][0], content), *members[index + 1 :]]


def _name(members: Members, bench: Bench) -> Members:
    chance = bench.chance
    member = members[_chosen(members, bench)][0]
    _, dot, suffix = member.name.partition(".")
    path = bench.hostile_path(bench.folder / NAME / "data")
    new = chance.choice((path, str(odd_value(chance))[:400]))
    longer = f"{new}{dot}{suffix}"
    names = (new, longer, f"{member.name}.{suffix}", suffix, f".{suffix}", member.name.upper())
    member.name = chance.choice(names).replace("\0", "") or "x"
    bench.tell(f"name ← {member.name[:80]!r}")
    return members


def _kind(members: Members, bench: Bench) -> Members:
    member = members[_chosen(members, bench)][0]
    member.type = bench.chance.choice(_KINDS)
    canary = str(bench.canaries.paths()[0])
    outside = "../../../../../secret/secret.txt"
    targets = (canary, outside, member.name, members[0][0].name, "nowhere")
    member.linkname = bench.chance.choice(targets)
    bench.tell(f"{member.name} is {member.type!r} to {member.linkname[:60]}")
    return members


def _document(members: Members, bench: Bench) -> Members:
    index = _chosen(members, bench, ".json")
    try:
        tree = json.loads(members[index][1])
    except (ValueError, RecursionError):
        return members
    content = as_bytes(json_text(bench.mutate(tree, json_fragment, 1, 2)))
    return _with_content(members, index, content)


def _label(members: Members, bench: Bench) -> Members:
    index = _chosen(members, bench, ".cls")
    odd = bench.chance.choice(_LABELS)
    bench.tell(f"{members[index][0].name} ← {odd[:20]!r}")
    return _with_content(members, index, odd)


def _image(members: Members, bench: Bench) -> Members:
    index = _chosen(members, bench, ".jpg")
    what, content = odd_picture(bench.chance, bench.shared)
    bench.tell(f"{members[index][0].name} ← {what}")
    return _with_content(members, index, content)


def _order(members: Members, bench: Bench) -> Members:
    """Remove a member, double it, or move it."""
    index = _chosen(members, bench)
    how = bench.chance.choice(("gone", "twice", "moved"))
    bench.tell(f"{members[index][0].name} {how}")
    rest = [*members[:index], *members[index + 1 :]]
    if how == "gone":
        return rest
    if how == "twice":
        return [*members[:index], *members[index : index + 1], *members[index:]]
    other = bench.chance.randrange(len(rest) + 1)
    return [*rest[:other], members[index], *rest[other:]]


def _headers(members: Members, bench: Bench) -> Members:
    chance = bench.chance
    member = members[_chosen(members, bench)][0]
    odd = {
        chance.choice(_HEADERS): chance.choice(_HEADER_VALUES) for _ in range(chance.choice((1, 2)))
    }
    member.pax_headers = {**member.pax_headers, **odd}
    bench.tell(f"{member.name} has headers {odd}")
    return members


def _sparse(members: Members, bench: Bench) -> Members:
    """Return a few bytes that read as 20 GB of zeros."""
    member, content = members[_chosen(members, bench)]
    member.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": member.name,
        "GNU.sparse.size": str(20 * 10**9),
        "GNU.sparse.map": f"0,{len(content)}",
    }
    bench.tell(f"{member.name} is sparse, of 20 GB")
    return members


def _large(members: Members, bench: Bench) -> Members:
    index = _chosen(members, bench)
    bench.tell(f"{members[index][0].name} of 30 MB")
    return _with_content(members, index, members[index][1] + b" " * 30_000_000)


_CHANGES: tuple[Callable[[Members, Bench], Members], ...] = (
    _name,
    _name,
    _kind,
    _kind,
    _document,
    _document,
    _document,
    _label,
    _image,
    _image,
    _order,
    _order,
    _headers,
    _sparse,
    _large,
)


def _written(members: Members) -> bytes:
    file = io.BytesIO()
    with tarfile.open(
        fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogatepass"
    ) as tar:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            member.name = _escaped(member.name)
            member.linkname = _escaped(member.linkname)
            headers = member.pax_headers
            member.pax_headers = {key: _escaped(value) for key, value in headers.items()}
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _escaped(text: str) -> str:
    """Return the text with the bytes of half a character in the place of that half, which no
    archive can hold."""
    return as_bytes(text).decode("utf-8", "surrogateescape")


def _with_odd_header(content: bytes, bench: Bench) -> bytes:
    """Write another size, kind or name into a header, with a right checksum."""
    chance = bench.chance
    headers = [
        at for at in range(0, len(content) - 512, 512) if content[at + 257 : at + 262] == b"ustar"
    ]
    start = chance.choice(headers or [0])
    header = bytearray(content[start : start + 512])
    field, value = chance.choice(_FIELDS)
    header[field : field + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    bench.tell(f"header at {start}: {value[:12]!r} at {field}")
    return content[:start] + bytes(header) + content[start + 512 :]
