"""The stages of scripts/train_lab.py: each trains or measures one of the lab's models from a seed, and can be killed."""
