"""The stages of scripts/train_lab.py: each trains or measures a model of the lab from a seed."""
