"""Finding where a classifier fails: named on one half of the images, tested on the other, made a
recipe."""
