"""Trained image classifiers, loaded by name; one file a kind."""

from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.classifiers.of_timm import describe_classifier, load_classifier

__all__ = ["Classifier", "ClassifierFacts", "describe_classifier", "load_classifier"]
