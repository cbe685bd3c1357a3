"""Input datasets, pinned and loaded by their pins, and labelled images of any origin."""
