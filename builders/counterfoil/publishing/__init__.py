"""A dataset directory, or a model's folder, to the Hub: what differs, blobs first, one commit, compared and loaded."""

from counterfoil.publishing.publish_dataset import Publication, publish
from counterfoil.publishing.publish_model import PublishedModel, publish_model

__all__ = ["Publication", "PublishedModel", "publish", "publish_model"]
