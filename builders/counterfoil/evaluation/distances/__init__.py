"""How far a dataset's images are from those of its source, in the features of a model: KID first, and FID."""
