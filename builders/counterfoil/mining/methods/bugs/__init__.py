"""Discovering bugs (Wiles 2022): descriptions of failures in generated images, each tested in pairs with fresh ones."""

from __future__ import annotations
