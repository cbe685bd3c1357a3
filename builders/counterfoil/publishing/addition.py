"""A file's addition to a commit, as the Hub's client asks for it, of nothing but the content that was verified.

The client reads a small file when it commits, and a large one when it uploads it: over HTTP through `as_file`, which
gives it an `UnchangedReader`, or with Xet by the path, and then tells the sha256 of what it sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from huggingface_hub import CommitOperationAdd
from huggingface_hub.lfs import UploadInfo

from counterfoil.publishing.unchanged import UnchangedReader, changed, refuse_changed

if TYPE_CHECKING:
    from counterfoil.publishing.files import LocalFile

# What the Hub is shown of a file, to tell text from other content.
_SAMPLE = 512


class Addition(CommitOperationAdd):
    """One file's addition. Making and reading it raises RunFailure where the file changed since it was hashed."""

    def __init__(self, file: LocalFile) -> None:
        super().__init__(file.path, b"")  # what it does with a path opens whatever is there
        self._file = file
        with UnchangedReader(file) as reader:
            sample = reader.read(_SAMPLE)
        self.path_or_fileobj = str(file.place.absolute())
        self.upload_info = _Announced(file, sample)

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
        with UnchangedReader(self._file) as reader:
            yield cast("BinaryIO", reader)

    def before_sending(self) -> None:
        """RunFailure where the file is none any more: whatever is there now, it is not opened by its path."""
        if not self._is_uploaded:
            refuse_changed(self._file)

    def after_sending(self) -> None:
        """RunFailure where what Xet sent is another content than the file's."""
        sent = self.upload_info
        if sent.is_hashed and sent.sha256.hex() != self._file.sha256:
            raise changed(self._file.directory, {self._file.path: "its sha256 is another"})


class _Announced(UploadInfo):
    """Announces the sha256 that was verified, and stays open for the one that Xet finds as it sends.

    The client lets Xet find it where it is not known (`is_hashed`), and asks for it (`sha256`) otherwise.
    """

    def __init__(self, file: LocalFile, sample: bytes) -> None:
        super().__init__(file.size, sample, source_path=str(file.place))
        self._announced = bytes.fromhex(file.sha256)

    @property
    def sha256(self) -> bytes:
        return self._sha256 or self._announced

    @sha256.setter
    def sha256(self, value: bytes) -> None:
        self._sha256 = value
