"""Compare two files of answers to the same images, whoever made them."""
