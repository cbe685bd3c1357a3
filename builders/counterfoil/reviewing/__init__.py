"""People look at a dataset's labels: the page that asks them, and what their answers say of the
images."""
