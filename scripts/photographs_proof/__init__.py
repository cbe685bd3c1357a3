"""The proof on photographs: real images, trained networks and published tables that are not part of
the project."""
