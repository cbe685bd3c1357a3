"""Publish a dataset directory or a model's folder to the Hub: contents first, one commit, then compare and load."""

from counterfoil.publishing.publish_dataset import Publication, publish
from counterfoil.publishing.publish_model import PublishedModel, publish_model

__all__ = ["Publication", "PublishedModel", "publish", "publish_model"]
