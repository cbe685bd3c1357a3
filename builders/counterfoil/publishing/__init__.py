"""A dataset directory, or a model's folder, to the Hub: what differs, blobs first, one commit, compared and loaded."""

from counterfoil.publishing.publish_dataset import Publication, publish, publish_steps
from counterfoil.publishing.publish_model import PublishedModel, publish_model, publish_model_steps

__all__ = ["Publication", "PublishedModel", "publish", "publish_model", "publish_model_steps", "publish_steps"]
