"""Classifiers' answers to labelled images, cached by content and resumed where a run stopped."""
