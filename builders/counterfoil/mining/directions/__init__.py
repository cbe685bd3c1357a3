"""Failure directions (Jain 2023): per class a linear SVM on CLIP embeddings, right rows against wrong ones."""
