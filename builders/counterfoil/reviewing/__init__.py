"""People look at a dataset's labels: the page that asks them, and what their answers say of the images."""

from counterfoil.reviewing.review_answers import Review, review_answers
from counterfoil.reviewing.review_dataset import ReviewPage, review

__all__ = ["Review", "ReviewPage", "review", "review_answers"]
