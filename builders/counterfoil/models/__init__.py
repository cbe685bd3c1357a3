"""Loading diffusion and CLIP models and classifiers, by one resolver of names."""

from counterfoil.models.names import LAB_WEIGHTS, Pin, lab_models, local_folder, pin_model, resolve_name

__all__ = ["LAB_WEIGHTS", "Pin", "lab_models", "local_folder", "pin_model", "resolve_name"]
