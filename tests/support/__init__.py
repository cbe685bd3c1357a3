"""What tests of every room are given: small images, files, tables, recipes and refusals, each made in one place."""
