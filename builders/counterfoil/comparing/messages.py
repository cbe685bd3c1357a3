"""The texts of problems with compared files. `docs/reference/errors.md` is made from them.

`recipe/messages.py` says how the table is written, and `data/messages.py` adds to it.
"""

from __future__ import annotations

from counterfoil.errors import MessageTable

message = MessageTable.read(r"""
unknown-answers: A file to compare whose columns or values do not say which answers are right.
  column: has no column {found!r} ({flag})
  images: has no column of images, expected one of {expected}, or --key
  scores: has no column of scores, expected one of {expected}, or --score; or prediction and label
  scorers: has {scorers:,} columns of scores, {found}: choose one with --score
  value: the column {found} has {value!q}, expected a number, or right or wrong (true or false,
    yes or no, C or I)
    > Choose another column with --score, or name --prediction and --label.
  words: no prediction is one of the labels: predictions are {found}, labels are {expected}
    > Write both in the same words, or write a column that says which answers are right, and name it
      with --score.
  confidences: the column {found} may say how sure the model is: it gives {images:answer|answers}
    equal to the label less than others
    > Name --prediction and --label, whose columns are there too, or this column with --score.
  empty: no row has a score in {found}
    > Choose another column with --score, or name --prediction and --label.
  many: has over {found:,} rows
    > Compare parts of it.

unlike-files: Compared files that state different facts of an image, or whose images lack one.
  > Choose columns with --key, --unit and --where.
  repeated: {images:image has|images have} several answers, such as {found}: name more columns with
    --key, choose rows with --where COLUMN=VALUE, or name the column of repetitions with --epoch
  values: an image has several values: {found}
  facts: the files disagree about the {what} of {images:image|images}: {found}
  column: neither file has a column {found!r}
  units: of {expected:,} images, {units:has|have} no unit
  images: no image is in both files: {found}, {expected}
""")
refusal = message.refusal
