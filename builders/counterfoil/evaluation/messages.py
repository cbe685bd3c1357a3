"""The texts of problems with evaluations, their gates and results. `docs/reference/errors.md` is made from them.

`recipe/messages.py` says how the table is written, and `data/messages.py` adds to it.
"""

from __future__ import annotations

from counterfoil.errors import MessageTable

message = MessageTable.read(r"""
missing-model: No model is named, or none that can be judged.
  recipe: no model was named, and the recipe lists none under evaluate.models
    > Name some: counterfoil evaluate DATASET --models resnet50 lab:resnet10t
  task: no {found} was named
    > {how}
  judged: the gate judges no model: every model is one that a line compares with
    > Name another with --models.

unlisted-model: A model that is none of those that are named, given or evaluated.
  {found!r} is not one of the models{hint}
  compare: {found!r} is not one of the models{hint}
    > As in --compare local-dir:mended/model lab:resnet10t: the mended model, then its original.
  order: {found!r} is not one of the models{hint}
    > As in --class-order timm, or --class-order local-dir:my-model=classes.txt.
  callable: there is no callable {found!r}{hint}
  evaluated: {found!r} was not evaluated{hint}
    > Evaluated models: {expected}.

model-list: A list of models that cannot be read, or a line of it that is not a name.
  missing: there is no such list of models
  read: the list of models cannot be read: {found}
  text: is not a list of models, expected plain text with one name per line
  empty: lists no model
  unprintable: found {found}, expected one name of printable characters
  list: found {found!q}, but a list cannot name another list
  name: found {found!q}, expected one name per line and nothing else

unusable-model: A model that cannot do what an option asks of it, or its name or version.
  name: expected a printable text as its name
  version: found {found!r:.80}, expected a text such as '1'
  classes: gives one answer an image: its answers among the classes alone are unknown
    > Give a column of scores for each class, or leave out `outputs: classes`.
  scores: {found!r} gives one answer an image, without scores
  features: {found!r} has no features, expected a model that a folder, a file or the Hub holds
  clip: {found!r} stands for the CLIP model of a recipe's screen, but {lacking}
    > {how}: --distances open_clip:ViT-B-32/laion2b_s34b_b79k
  transform: a torch module needs a transform, which prepares an image
    > Pass transform=, a function from an RGB image to a tensor [3, height, width].

trained-on: A model that was mended on some of the images, or on images of the same noise or rows.
  > Images that a model was fitted to cannot measure what it learned. Evaluate it on others: a
    dataset built with another samples.seed, another split of the source, or other rows.
  mended: was mended on {found}, which is {expected}: the same images
  fitted: was fitted to images of {found}
  seed: was mended with {found} (recipe {recipe}), whose samples.seed {seed} is also that of
    {expected}: images of one seed come from the same noise
  images: was fitted to {images:,} of the {total:,} images of {expected}, or to edits of them
  rows: was mended with {found}, and {expected} has edits of {rows:,} of the same rows, such as row
    {row} of {split}

class-order: An order of classes, or names of a model's numbers, that cannot be used or are missing.
  named: the answers of {found!r} bring the names of their classes
    > As in --class-order timm, or --class-order local-dir:my-model=classes.txt.
  value: expected the names of classes, a file of them, position or timm
  missing: there is no file {found}, and it is neither position nor timm
    > Write a file with the class of each output on a line, in the order of the outputs.
  text: {found} is not plain text with a class on each line
  read: {found} cannot be read: {reason}
  unread: {found}
    > Give {expected} or a file of names.
  lines: {found} has {lines:line|lines}, expected 1 to {expected:,}
  empty: line {line} of {found} is empty, expected a class on each line
  order: found the order {found!q}, expected position, or the names of its {what}
  labels: does not say what its labels are called
    > Give it a list `label_names`, by number, or pass class_order={{"NAME": [names]}}.
  classes: does not say what its classes are called
    > Give it a list `label_names`, by number, or pass class_order={{"NAME": [names]}}, or
      'position' if they are the dataset's in its order.

unclear-category: Categories of detections that cannot be matched with those of the dataset.
  > Write names of categories, or say which category each number is with --class-order MODEL=ORDER:
    position, from1, ids, coco80, coco91 or a file with a name on each line, from number 0 on.
  mixed: some categories are numbers and some are names
  meanings: its categories are the numbers {found}, which have several meanings: {meanings}
  meaningless: its categories are the numbers {found}, which have no meaning that explains all:
    {meanings}
  others: no detection is of the dataset's categories: {found}, {meaning}
  ids: the dataset's recipe has no source.category_ids, so its numbers are unknown
  coco: {found!q} is no category of COCO
  none: none of its categories is one of the dataset's: {found:.200}
    > The dataset's categories are {expected:first}.
  near: there is no category {found!q}{hint}
    > The dataset's categories are {expected:first}.
  label: no label is called {found!q}{hint}
    > Its labels are {labels:.300}. Rename categories in the recipe (source.categories) as the
      detector calls them, or give its names in order as class_order.

invalid-option: An option with a value that it cannot have.
  found {found!r}, expected {expected}
  compare: found {found}, expected two different models
    > As in --compare local-dir:mended/model lab:resnet10t: the mended model, then its original.
  limit: found {found:,}, expected 1 to {expected:,}
  labels: found {found:,}, expected at least {expected:,}: a preview measures the same labels as the
    whole dataset, and needs {fewest} images with each label and {fewest} without it
    > Take more images, or leave out rare labels with a higher min_images_per_class (--min-images).

unfit-option: An option that does not go with the dataset, its task, the models or another option.
  task: the dataset has {found} take no {expected}
    > Leave it out: groups are compared with the base, and all models with each other.
  built: is a built dataset, which has its own recipe, base and groups
  card: is not a built dataset, so it has no card for results
  published: is a published dataset; results are stored in a dataset's directory
    > Fetch it (hf download {found} --repo-type dataset --local-dir DIR), evaluate DIR with
      --into-card and publish it again; or drop --into-card.
  shifts: stores the results of a dataset's own shifts, and {found} adds others
    > Leave out into_card or {found}.
  undecided: goes with a gate, and none is given
    > Leave it out, or give one.
  preview: this is a preview of {images:,} images a shift, which takes no {found}
    > Build the recipe without --limit.
  limit: this is a preview of {images:,} images a shift, which takes no {found}
    > Leave out --limit to evaluate all images.
  outputs: this dataset's images were chosen by what classifiers answered over all their outputs, so
    accuracies over its classes alone cannot be compared with that choice
    > Leave out `outputs: classes`.
  transform: needs a callable, and none is given
    > Give one: evaluate(dataset, {{"mine": model}}, …)
  against: needs --distances, because it says what distances are measured to
    > Add --distances clip

invalid-gate: A gate that is no list of lines, or a line that cannot be read.
  list: expected a list of lines, as in: - drop(at_night) <= 10
  many: has {found:,} lines, expected at most {expected:,}
  twice: has the same comparison as {found}
  text: expected text, MEASURE(NAME) <= NUMBER
  line: expected MEASURE(NAME) <= NUMBER{hint}
  measure: there is no measure {found!q}{hint}
  compared: there is no measure {found!q}{hint}; {takes}
  names: {takes}
  sign: {measure} takes {expected}, not {found}
  limit: the limit is {found!q}, expected a number such as 2.5, from {least:g} to 100
  points: {measure} takes points: write {found} points{instead}
  percent: {measure} takes percent: write {found} %
  unit: {found} would be {found} {unit}: write {whole} for {whole} {unit}, or {found} {unit} if you
    mean it

unfit-line: A line of a gate that the images or the kind of models cannot answer.
  base: the base has no drop
  base-group: {found!r} is the base, which has no drop
  no-base: the images have no base; name it with --base GROUP
  differs: {found} compares the answers of classifiers of one class an image
  earlier: earlier evaluations are for classifiers of one class an image; name a model, or
    predictions:FILE
  accuracies: an earlier evaluation gives accuracies alone; name a model, or predictions:FILE
  category: only AP is measured by category
  pixels: {found} is of all classes together: name {expected}
  class: {found} is of one class: name it, as in {found}(fog, class=NAME)

gate-failed: A line of a gate that the model does not meet, or that is undecided.
  {found}

unmeasured-group: A group, a shift or a class that the images do not have.
  group: has no group {found!r}{hint}
    > It has: {expected:first}.
  line: {images} has no shift or group {found!r}{hint}
  class: {images} has no class {found!r}{hint}
  classes: {count} classes are called {found!r}; give an id

group-clash: Two groups with one name.
  beside: there are two groups {found!r}
    > Give the --beside images another name.
  taken: has a group {found} already
    > Give the computed shift another name, or leave it out.
  computed: two computed shifts have the name {found}
    > Give the computed shift another name, or leave it out.

nothing-to-measure: No image, label or answer is left to measure.
  base: has no accepted base image, so there is nothing to measure a drop against
    > Lower the object threshold, or ask for more candidates, and build it again.
  groups: has {found:,} groups, and no base whose images are prepared otherwise
    > Name one of its groups with --base.
  rows: no row of the source is in every group, so groups cannot be compared
  pixels: no pixel of its masks has a class
  labels: no label has {found} images with it and as many without it
    > Build with more samples.candidates, or lower min_images_per_class (--min-images).
  decoded: no {found} can be decoded
  built: no {found} can be decoded
    > Run `counterfoil verify` on it.

altered-dataset: A dataset's directory as no build writes it.
  > `counterfoil verify` names what is damaged and how to repair it.
  data: has no data folder: no candidate was accepted, or files are missing
  unit: an image has no unit, or another than its base image
  lock: is not a lock that a build wrote: {found}
  pool: {column} of {found} is not a row of a pool; the same holds for {more:,} more images
  counts: the candidates of {found} do not match the counts in its receipts
  missing: {found} is accepted in candidates but missing in data
  rejected: data has {found}, which the candidates of {shift} reject
  images: rejected does not hold the image of each rejected candidate exactly once
  cell: {found} has {what} that no build writes
  differs: {found} does not have the {what} of its base image

unknown-images: A path that is neither a built dataset nor a set of images with labels.
  is neither a built dataset (it has no {found}) nor a set of images with labels

unknown-source: The source of images is unknown here, or not as the dataset records it.
  recipe: its source is unknown without a recipe
    > Name one: --recipe wardrobe-mini
  against: the images have no recipe, so their source is unknown
    > Name a source: --against IMAGES
  splits: has neither split of the recipe; its splits: {found}
  revision: is at revision {found} here, expected {expected}, the revision that the dataset was
    built from
  absent: {found!r} is not on this machine
    > Add --reference to download it.
  models: no model can be scored on it: {found}
  labels: each row of the source has several labels, expected one class per row

unfit-results: Files of an earlier evaluation that cannot be read, or are of other images.
  > A line compares with results.json of an earlier evaluation of the same images, and with the
    predictions.parquet that was written beside it.
  file: {found}
  read: cannot be read: {found}
  predictions: cannot be read: {found}
    > Run the evaluation again to write it.
  images: is of other images ({dataset}, content {found:.12}), expected those of {images}
    ({expected:.12})
  model: has {models}, and no model {found!r}
  outputs: its answers are over the outputs `{found}`, and those to compare with it over
    `{expected}`
    > Evaluate both with the same --outputs.
  table: is not a table of predictions: {found}
  rows: has {found:row|rows}, expected {expected:,}
  keys: its keys are not those of {found}
  process: these results were not made by an evaluation in this process
    > Evaluate again.

unclear-number: A name or a key that no number of the results has, or several have.
  no number has the {name} {found!r}{hint}
    > There are: {known}.
  several: {found!r} has {numbers:,} numbers of this key
    > Name which: {differing}, say.

invalid-detections: Answers of a detector in a form that cannot be used.
  > Expected COCO results (a JSON list of image_id, category_id or category, bbox, score), or a
    Parquet or CSV table with the columns key, category, score and bbox, or x, y, width, height.
    Boxes are [x, y, width, height] in pixels of the stored image.
  file: {found}
  read: cannot be read: {found}
  entry: detection {first}: {found}
  entries: detection {first} and {more:,} more: {found}
  empty: lists no image
  many: has more than {found:,} detections
    > Leave out those of low scores.
  image: has over {found:,} detections on {image}
    > Leave out low scores.
  answer: an answer is not of torchvision's form: {found}
    > Expected a mapping of boxes [n, 4] (corners in pixels), scores [n] and labels [n] for each
      image.

invalid-masks: Answers of a segmenter in a form that cannot be used.
  > Expected a folder with KEY.png for each image (`--write-keys FILE` lists the keys), or a Parquet
    table with the columns key and mask: PNG of one channel or with a palette, as large as the
    image, with numbers of classes.
  folder: is neither a folder nor a file
  table: is no Parquet file
  file: {found}
  read: cannot be read: {found}
  image: there is no image {found!q}
  twice: it has two masks of {found!q}
  two: has two masks of {found!q}: {files}
    > Name the folder with the answers of one model.
  number: gives a pixel the class {found}, expected 0 to {expected}, or 255 for none
  finite: an answer has scores that are not finite
    > Expected for each image numbers of classes [height, width], or scores
      [classes, height, width].
  sides: an answer has the sides {found}, and its image {expected}, its height and width
    > Transpose answers: height comes before width.
  shape: an answer has the shape {found} and the type {dtype}; it has {classes} names of classes
    > Expected for each image numbers of classes [height, width], or scores
      [classes, height, width].

missing-answers: Images that a file of answers leaves out.
  masks: has no mask of {count:image|images}: {found:some}
    > Expected a folder with KEY.png for each image (`--write-keys FILE` lists the keys), or a
      Parquet table with the columns key and mask.
  detections: has no detection on any image of {found}
    > A file answers every group of the dataset (`--write-keys FILE` lists all images). If nothing
      was found there, list an image of the group by its key alone.

existing-output: A file or a folder that is not where a result may be written.
  file: is a file, expected a folder
    > Name another with --out.
  exists: the file exists already
    > Name another, or remove it.
  folder: is not an empty folder
    > Name a new one: existing files are kept.

tracker: A tracker that is unknown, not installed or does not take the run.
  unknown: there is no tracker {found!q}{hint}
    > The trackers are {expected}.
  absent: is not installed: {how}
    > The trackers are {expected}.
  refused: did not take the run: {found:.300}
    > The report is written: {report}
""")
refusal = message.refusal
failure = message.failure
