"""What comes out: how many samples, how they are stored, scored and published."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.recipe.names import GROUP_NAME, LONGEST_NAME, REPOSITORY, quoted
from counterfoil.section import Section, refuse


class CellSamples(Section):
    """How many samples a cell (one class under one shift) has: all that are rendered, or a quota of accepted ones."""

    candidates: int | None = Field(default=None, ge=1, le=1_000_000, description="Candidates a cell.")
    accepted: int | None = Field(default=None, ge=1, le=1_000_000, description="Accepted samples wanted a cell.")
    at_most: int | None = Field(default=None, ge=1, le=1_000_000, description="Candidates a cell before giving up.")

    @model_validator(mode="after")
    def _one_mode(self) -> CellSamples:
        quota = self.accepted is not None or self.at_most is not None
        if self.candidates is not None and quota:
            raise ValueError(
                "found candidates with accepted or at_most, expected either candidates or both of the others"
                " (null drops an inherited one)"
            )
        if self.candidates is None and (self.accepted is None or self.at_most is None):
            raise ValueError("expected either candidates, or accepted and at_most")
        if self.accepted is not None and self.at_most is not None and self.at_most < self.accepted:
            raise ValueError(f"at_most is {self.at_most}, expected at least accepted ({self.accepted})")
        return self

    @property
    def most_candidates(self) -> int:
        """The most candidates that a cell can have."""
        count = self.candidates if self.candidates is not None else self.at_most
        assert count is not None
        return count


class Samples(CellSamples):
    """How many samples a cell has where its shift does not say otherwise, and their noise."""

    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed of the recipe.")
    noise: Literal["paired", "independent"] = Field(
        default="paired",
        description="`paired`: a sample of a shift starts from the noise of its base sample.",
    )


# Close to lossless to the eye, and what image libraries call high quality.
DEFAULT_QUALITY = {"jpg": 95, "webp": 90}


class ImageOutput(Section):
    """How an image is encoded."""

    format: Literal["png", "jpg", "webp"] = Field(default="png", description="Image format; png is lossless.")
    quality: int | None = Field(
        default=None, ge=1, le=100, description="Quality of jpg (null: 95) or webp (null: 90); png has none."
    )

    @model_validator(mode="after")
    def _png_has_none(self) -> ImageOutput:
        if self.format == "png" and self.quality is not None:
            raise ValueError(f"quality is {self.quality}, expected none with png, which is lossless")
        return self

    @property
    def encoding_quality(self) -> int | None:
        """The quality to encode at, with the default filled in; None for png."""
        return self.quality if self.quality is not None else DEFAULT_QUALITY.get(self.format)


class Output(Section):
    """How the dataset is stored."""

    format: Literal["parquet", "webdataset"] = Field(default="parquet", description="Format of the shards.")
    image: ImageOutput = Field(default=ImageOutput(), description="How images are encoded.")
    rows_per_shard: int = Field(default=1000, ge=1, description="Candidates a shard aims at; cells stay whole.")
    split: str = Field(default="test", description="Split name inside the configs of the groups.")

    @field_validator("split")
    @classmethod
    def _split(cls, value: str) -> str:
        if not GROUP_NAME.fullmatch(value) or value == "all" or len(value) > LONGEST_NAME:
            raise ValueError(
                f"found {quoted(value)}, expected a split name of a-z, 0-9 and '_', other than 'all', of at most"
                f" {LONGEST_NAME} characters"
            )
        return value


class Evaluate(Section):
    """How models are scored on the dataset."""

    models: tuple[str, ...] = Field(default=(), description="timm names, `local-dir:…` or `lab:…`.")
    min_images_per_class: int = Field(
        default=5,
        ge=1,
        description="Classes with fewer accepted images under a shift are left out (Vendrow 2023: 5).",
    )


class Publish(Section):
    """Where the dataset is published."""

    repo: str | None = Field(default=None, description="Hub repository, `user/name`.")
    private: bool = Field(default=True, description="Whether the repository is private.")
    tags: tuple[str, ...] = Field(default=(), description="Tags added to the card.")

    @field_validator("repo")
    @classmethod
    def _repository(cls, value: str | None) -> str | None:
        refuse(f"found {quoted(value)}, expected user/name" if value and not REPOSITORY.fullmatch(value) else None)
        return value
