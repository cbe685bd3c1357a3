"""Floor 6: a dataset directory to the Hub: what differs there, blobs first, one commit, then compared and loaded."""

from counterfoil.publishing.publish_dataset import Publication, publish, publish_steps

__all__ = ["Publication", "publish", "publish_steps"]
