"""Loading diffusion and CLIP models and classifiers, by one resolver of names."""
