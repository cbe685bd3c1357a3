"""The texts of problems with input datasets. `docs/reference/errors.md` is made from them.

`recipe/messages.py` says how the table is written. Here, `>` begins what to do, which stands below
the problems: for one sentence, or under a code for all its sentences without their own. A gap such
as `{images:image lies|images lie}` holds a number with the words after it.
"""

from __future__ import annotations

from counterfoil.errors import MessageTable

message = MessageTable.read(r"""
unknown-dataset: A dataset that does not exist here, in the lab or on the Hub.
  name: there is no such folder, and no dataset of the Hub can have this name
    > Name a folder or user/name, with the split after a colon: ./photos:validation.
  path: there is no such dataset
    > Name a folder made by `counterfoil build`, or user/name.
  file: is a file, expected the folder of a dataset
    > Name the folder given to `build --out`.
  reference: is not the name of a dataset on the Hub: {found}
    > Expected user/name.
  hub: there is no such folder, and no such dataset on the Hub (or it is private)
    > Check the name, or run `hf auth login`.
  loader: {found!r} is a loader of files, not a dataset
    > Name the folder of the files: ./…
  lab: the lab has no {found!r}{hint}
    > Its datasets are lab:wardrobe, lab:wardrobe-boxes, lab:wardrobe-masks and
      lab:planted/KIND-SEED.
  planted: the lab has no planted world {found!r}{hint}
    > Write lab:planted/KIND-SEED with a kind of {known} and a seed of 0 to {most}, such as
      lab:planted/{expected}-0.

unknown-split: A split that the dataset does not have.
  dataset: has no split {found!q}{hint}
    > Its splits are {expected}.
  folder: has no split {found!q}{hint}
    > Its splits are {expected}. A split is a folder at the top that is named so.
  listed: has no split {found!q}{hint}
    > Its splits are {expected}. README.md lists them.
  saved: has no split {found!q}: it was saved as {expected}
    > Name {expected}, or save all splits as one datasets.DatasetDict.
  none: has no split

unclear-split: Files that may belong to several splits, or to none.
  outside: the folders of splits are {found}, and {images:image lies|images lie} outside of them:
    {expected}
    > Put all images into folders of splits (train/mug/1.jpg, validation/mug/2.jpg), or rename a
      folder that is no split.
  doubtful: {found} may be a split or a class: the name has a word of splits, and there are folders
    below
    > Rename folders of splits to train, validation and test. Put folders of classes into one of
      them: train/test tube/1.jpg.
  several: {found} all name the split {split!r}
    > Join them, or rename one.
  below: {folders:folder is|folders are} named as splits below class folders: {found}
    > Splits come first: train/mug/1.jpg, test/mug/2.jpg. Move them to the top, or rename them.
  listed-twice: README.md lists {found} in {expected}
    > Correct data_files in README.md, or remove it: then the folders at the top tell the splits.
  listed-folders: README.md lists {found} as the one split {split!r}
    > Correct data_files in README.md, or remove it: then the folders at the top tell the splits.
  coco: {found} are annotations of one split
    > Keep one COCO file for each split, named after it: annotations/train.json,
      annotations/val.json.
  twice: {found:some} would be read in several splits
    > Name each file after its split (train.parquet, test.parquet), put files into folders of
      splits, or list the files of each split in README.md (configs: data_files). Move other files
      out of the dataset.
  unread: no split has {found:some}, and {expected:some} would be read
    > Name each file after its split (train.parquet, test.parquet), put files into folders of
      splits, or list the files of each split in README.md (configs: data_files). Move other files
      out of the dataset.

unclear-choice: A dataset with several splits, configs or tables, of which none is chosen.
  splits: has several splits: {found}
    > Name one after a colon, as in {expected}.
  configs: has several configs: {found}
    > Set source.config.
  one-config: has only one config, so configs cannot be groups
    > Name a column of groups.
  groups: groups are either the configs or the values of a column in one config
    > Name one of them.
  tables: has {found} CSV files ({expected:some}), expected one
    > Keep one that lists every image, or call it metadata.csv.
  yolo: has {found:some}, each with names of categories
    > Keep one.

missing-column: A table without a column that a recipe or an option names.
  has no column {found!r}
    > Its columns are {expected}. Set the key to one of them.
  condition: has no column {found!r}{hint}
    > Its columns are {expected}.
  images: has no column {found!r} with the names of the image files
    > Its columns are {expected}; name one as generator.image_column.
  file-name: has no column file_name; its columns are {expected:some}
    > The first line of a table names its columns, with commas between them: file_name,label.
  pair: has no column 'pair'
    > corruption match takes the pairs of a dataset that `counterfoil build` made.

unfit-column: A column whose values cannot be used as the recipe or the option asks.
  type: holds {found}, expected numbers, texts or lists of them
  label: holds {found!r} ({type}), expected names or whole numbers as labels
    > Write each label as text or as a whole number, or name another column as label_column.
  lists: {found!r} holds lists, so a row has several labels
    > List the labels that you want in source.conditions.
  empty: {found:row has|rows have} no {column}, such as row {row}
    > Name a column that every row fills.
  vectors: the column {found!q} has a 0 or a 1 for each label, and not the labels that an image has
    > Write a list of names, or a column of 0 and 1 for each label (source.conditions.columns).
  condition: has neither 0 nor 1 in {rows:row|rows}, such as {found} in row {row}
    > No value is taken for absent. Write 0 or 1 there, or leave the column out of
      source.conditions.columns. If blank and -1 mean that nobody knows, set
      source.conditions.unknown=ignore: each label is then measured on the images that know it. To
      count them as absent, set unknown=absent (or blank=absent for blank cells alone).
  given: found {found!q}, expected {expected}
    > Correct the table or the recipe: images need a class and a shift of the recipe, and every cell
      an image.
  given-rows: found {found!q}; so are {more:,} more, expected {expected}
  masks: the column {found!r} holds no masks
    > Name a column of images as source.masks.column. Outlines are read from COCO files.
  types: tables of one folder have columns of different types: {found}
    > Write the same columns with the same kinds of values in every table.
  seeds: found paired, and the table has no seeds; expected independent
    > Give images of a class the same seeds under every shift, or set samples.noise: independent.
  shared-seeds: found paired, and no two images have the same class and seed, one of them of the
    base; expected independent
    > Give images of a class the same seeds under every shift, or set samples.noise: independent.
  partner: row {found} has no partner to match

unknown-label: A label, a condition or a category that the recipe, the data or its description does
    not have.
  declared: the description lists {classes:class|classes} ({expected}), and {found} is none of them
    > Correct the names under dataset_info in README.md (or in dataset_infos.json), or remove them:
      then classes are the names of the folders.
  numbered: the labels {found} are none of those that the description lists: {expected}
    > Correct the names under dataset_info in README.md (or in dataset_infos.json), or the labels of
      the table.
  all: no label matches a class
    > Use the classes' ids or names as labels, or name another label column.
  condition: has no label {found!r}{hint}
    > Its labels are {expected:first}.
  row: row {row} has the label {found!r}, which the recipe does not know{hint}
  rows: row {row} and {others:other|others} have the label {found!r}, which the recipe does not
    know{hint}
    > List every label in source.conditions.labels, or in `others` if you do not need it. A row
      without a condition holds an empty list or one of the others. If blank and -1 mean that nobody
      knows, set source.conditions.unknown=ignore: each label is then measured on the images that
      know it. To count them as absent, set unknown=absent (or blank=absent for blank cells alone).
  given-label: {rows:row|rows} of the label {found!q}, expected the id or name of a class of the
    recipe{hint}
  given-shift: {rows:row|rows} of the shift {found!q}, expected base or a shift of the recipe{hint}
  given-class: {rows:row|rows} of the class {expected!r} under {found!q}, expected another class:
    prompts.shifts does not list it there
  category: has no category {found!q}{hint}
    > Its categories are {expected:first}.
  mask-class: has no category {found!r}{hint}
    > Its categories are {expected:first}. The class background is what is outside all outlines.
  number: has an object of category {found}, and the recipe names {expected} categories, from 0 on
    > Name every category, in the order of their numbers.

unclear-label: A label that may mean several classes, or a class that several labels may mean.
  folders: the class folders {found} have one name
    > Rename them, or join them in one folder. Capitals, spaces at the ends, _ and -, and two ways
      to encode an accent tell no class from another.
  texts: the labels {found} of the column {column!r} have one name
    > Write each class in one way. Capitals, spaces at the ends, _ and -, and two ways to encode an
      accent tell no class from another.
  name: label {found!r} is the name of several classes: {expected}
    > Use the class ids for these labels.
  several: its rows have several labels, but one label per row is needed here
    > Give object thresholds as values instead of percentiles; evaluate on a dataset that is built.
  configs: its configs have different labels
    > Name one config.
  numbers: the labels of the column {found!r} are numbers, and have no names
    > Write each class out: {{name: mug, source_label: 0}}.
  splits: label {label} is {found}: the number does not mean the same class in every split
    > Give each split the same labels, or declare those of {column!r} (a `ClassLabel`).
  files: the column {found!r} numbers its classes differently in {expected}, so labels of one would
    be read as the other's
    > Write all files with the same names in the same order: datasets' cast_column does it.
  card: README.md names the classes of the column {found!r} differently from {expected}, so labels
    would be read as other classes
    > Correct dataset_info in README.md (or in dataset_infos.json), or remove it: then the names are
      those of the files.
  id: no id can be made from the name {found!q} (label {label})
    > Write the classes out, with an id of their own: {{id: cup-2, name: cup, source_label: 1}}.
  ids: the names {expected} would both have the id {found!q}
    > Write the classes out, with an id of their own: {{id: cup-2, name: cup, source_label: 1}}.
  named: {found}
    > Use the names of the labels, or give the label as source_label.
  taken: {found!q} is label {label}, which already belongs to {first!q}
    > Use the names of the labels, or give the label as source_label.

missing-label: Images or rows without a label, where each needs one.
  one-folder: all images are in one folder, so there are no classes
    > Put the images of each class into a folder of its own: mug/1.jpg, star/1.jpg.
  beside-csv: all images are in one folder, so there are no classes
    > Put the images of each class into a folder of its own: mug/1.jpg, star/1.jpg. A CSV file with
      labels is read if it is called metadata.csv, stands in the folder of the images or above, and
      has the columns file_name (the path from there) and label.
  loose: {images:image lies|images lie} beside the class folders, in none of them: {found}
    > Move each image into the folder of its class, or out of the dataset.
  outside: labels are in {expected}, and {images:image lies|images lie} in other folders, such as
    {found}
    > List every image in one metadata.csv at the top (file_name is the path from there), or remove
      the table: then classes are the names of the folders.
  column: {found!r} holds no value in any row
    > Fill in the labels, or name another column as label_column.
  blank: {found:row has|rows have} no value, such as row {row}

no-images: A folder, a split, a class or a cell of the recipe without an image.
  folder: holds no image{found}
    > Name a folder that has a folder of images for each class.
  split: no image is in the split {split!r}, which README.md lists as {found}
    > Correct data_files in README.md, or remove it: then the folders at the top tell the splits.
  classes: has no row of these classes
    > Name another split.
  cells: {found:,} of {expected:,} cells have no image: {cells}; add images, or list the classes
    that a shift has (prompts.shifts.NAME.classes)
  objects: none of {found:image|images} has an object of the recipe's {expected:category|categories}
    > Check that images and labels belong together and that source.categories are those of the
      dataset. A detector has no AP on images without objects.
  coco: lists {found:,} images, and none of them is in the folder
    > Put the images beside the file, or into a folder images/. Names must be those of the file
      (file_name).
  masks: no image has a mask of its name
    > Name both alike: images/1.jpg and masks/1.png.

image-list: A table of images with a wrong line.
  > The first line of a table names its columns, and each line after it is one image: its path from
    the folder of the table, such as mug/1.jpg.
  image: names {found}, which is no image of the folder
  outside: names {found}, which is no path inside the folder of the table
  above: names {found!q}, which does not lie in the folder
  twice: names {found!q} more than once, expected an image of its own a line
  label: two lines give {found!q} the {column} {expected}
    > Keep one line for each image.
  seed: seed {found} is there twice, expected each once in a cell, or a column that numbers the
    images of a cell (generator.index_column)
  index: index {found} is there twice, expected each once in a cell
  forms: has tables of several forms: {found:some}
    > Keep tables of one form.
  empty: {found:some} lists no image
  none: lists no image
  header: found {found}, expected 1 to {expected} names, each once
  columns: {found} values, expected {expected}
  csv: is not CSV: {found}

unreadable-image: An image of a dataset that cannot be decoded or read.
  row: unreadable image ({found})
    > Remove or replace this row of the input dataset.
  file: the image cannot be read: {found}
    > Restore it.

outside-dataset: A dataset that names a file outside its folder.
  > An input dataset must contain all its files: move the files into it.
  takes rows from {found:.200}, which is not in it
  image: its image is the file {found:.200}, which is not in the dataset

unreadable-data: A file or a folder of a dataset that cannot be read: it is damaged, of another
    form, a link or a pipe.
  {found}
  folder: cannot be listed: {found}
  read: cannot be read: {found}
  listed: {found}
    > Restore it.
  archive: class folders in archives are not read ({found:some})
    > Unpack each archive into the folder of the dataset, and remove it.
  pinned: {found}
    > The lock pins the files in the folder: replace links with the files themselves.
  file: {found}
  linked: {found} is a link, and linked folders are read only in folders of image files
    > Replace the link with the folder itself.
  dataset: cannot be read: {found}
    > Check the dataset's name, its config and its split.
  metadata: cannot be read: {found}
    > The first line of metadata.csv names its columns, with commas between them: file_name,label.
  encoding: cannot be read: {found}
    > Save metadata.csv and other tables as UTF-8.
  table: {found}
    > Remove it, or write it again as Parquet.
  saved: {found}, expected files in the same folder
    > A saved dataset is what dataset.save_to_disk(FOLDER) wrote: save it again.
  parts: lacks {found:part|parts} of {expected:,}, such as {first}
    > Fetch all parts, or rename those that you mean: train-a.parquet.
  metadata-table: cannot be read: {found}
    > The first line of a table names its columns, with commas between them: file_name,label.
  utf8: is not UTF-8 text (byte {byte})
    > Save it and other tables as UTF-8.
  name: the name is not UTF-8 text
    > Rename the file or the folder. In the name shown, \xe9 is the byte E9.
  json: is not JSON: {found}
  yaml: is not YAML: {found}

too-much-data: More rows, columns, labels, objects or bytes than are read.
  rows: has {found:,} rows, expected at most {expected:,}
  lines: has more than {expected:,} lines
  table: the table of images takes {found:,} bytes, expected at most {expected:,}
    > Build fewer candidates, classes or shifts, or shorten the prompts.
  cell: a cell has a list of {found:,} values, expected at most {expected:,}
  image: the image has {found:,} bytes, expected at most {expected:,}
  labels: has {found:,} labels in the column {column!r}, expected at most {expected:,}
    > Check that it is the label column (source.label_column), or write the classes out with
      source_label.
  objects: an image has {found:,} objects, expected at most {expected:,}
  boxes: has over {expected:,} objects, expected at most as many

invalid-coco: A COCO file whose images, annotations or categories cannot be used.
  > A COCO file has the lists images (id, file_name), annotations (image_id, category_id, bbox) and
    categories.
  json: is not JSON: {found}
  categories: categories: {found}
  category: found {found!q}, expected a name, and an id of its own
  differ: {found} have other categories, or in another order
    > Give every split the same list of categories.
  image: found {found!q}, expected a file_name, and an id of its own
  several: {found!q} may be {expected}
  again: {found!q} is listed again
  annotation: found {found!q}, expected a mapping
  image-id: there is no image {found!q}
  category-id: there is no category {found!q}
  bbox: bbox is {found!q}, expected [x, y, width, height]
  side: bbox is {found!q}, expected [x, y, width, height], of which no side is below 0
  iscrowd: iscrowd is {found!q}, expected 0 or 1

invalid-yolo: A YOLO folder whose data.yaml or labels cannot be used.
  > data.yaml has names (of the categories) and train, val, test: folders of images, beside folders
    of labels. A line of labels is a category's number and the box's centre and size as shares of
    the image: 0 0.5 0.5 0.2 0.3. A polygon is read as the box around it.
  unnamed: has files of labels, such as {found}, and no data.yaml that names the categories
    > Write data.yaml into this folder, with names (of the categories, from number 0 on) and train,
      val: folders of images. Or name the folder that has it.
  folders: train, val and test name no folder that has an image
  folder: found {found!q}, expected the name of a folder
  numbers: names has numbers that are not 0 to {expected}
  count: nc is {found}, and names has {expected} names
  names: names: {found}
  several: {found} may be the labels of {expected}
    > Give every image a name of its own, or keep one of them.
  line: found {found!q}, expected a number from 0 to {expected} and four shares
  track: found {found!q}, which may be a box with a score and the number of a track, or a triangle;
    expected a number from 0 to {expected} and four shares
  shares: found {found!q}, expected a number from 0 to {expected} and four shares from 0 to 1
  side: found {found!q}, expected a number from 0 to {expected} and four shares, of which no side is
    below 0

invalid-voc: A Pascal VOC folder whose annotations or lists cannot be used.
  > A VOC folder has Annotations/*.xml, JPEGImages/ and, for splits, ImageSets/Main/train.txt,
    val.txt and test.txt. A file has objects with a name and a bndbox of xmin, ymin, xmax and ymax.
  xml: {found}
  images: has {found:,} files of annotations, and no image of their names
  several: {found} may be of {expected}
    > Give every image a name of its own, or keep one of them.
  again: an image has several files of annotations
    > Keep one file for each image.
  objects: categories: no image has an object
  categories: categories: {found}
  name: has no name
  bndbox: has the bndbox {found!q}, expected xmin, ymin, xmax, ymax
  difficult: difficult is {found!q}, expected 0 or 1
  twice: ImageSets/Main names images, and several have one name
    > Name each image once.
  lists: ImageSets/Main lists no image that has annotations

invalid-boxes: A cell of objects, or sizes of images, by which no box can be placed.
  > Name the column of boxes as source.objects, and their form as source.boxes (coco, yolo or
    pascal).
  side: has the box {found!q}, with a side below 0 as {form}
  lists: has {found:,} lists, expected at most {expected:,} objects
  json: found {found!q}, expected JSON of objects with bbox and category
  objects: found {found!q}, expected objects with bbox and category
  many: has {found:,} objects, expected at most {expected:,}
  counts: has {found:box|boxes} and {expected:category|categories}, expected as many
  box: has the box {found!q}, expected four numbers
  category: has a category that is neither a name nor a number
  sizes: {found:image|images} of {expected:,} have another size than their file says, and no single
    ratio explains it: {first}
    > Boxes are in pixels of the written size: use the images that were labelled, or correct the
      file.

invalid-mask: A mask that is no PNG of the size of its image with the numbers of classes.
  > A mask is a PNG of one channel or with a palette, as large as its image (resize it by the
    nearest pixel). Its values are the positions of source.masks.classes, or source.masks.numbers;
    255 is no class. docs/how-to/segmentation.md converts masks in colours.
  {found}
  number: it has the number {found}, and the recipe names {expected} classes, from 0 on
  empty: no pixel has a class
  white: the masks have the numbers 0 and 255 alone, and 255 is no class; no pixel has {found!q}
    > If white is a class, set source.masks.numbers=[0, 255].
  palette: the colour {colour} has the number {found} in its palette, and {expected} in another mask
    > Numbers of the same class differ from mask to mask. Save all masks with one palette, or
      convert their colours into numbers as docs/how-to/segmentation.md does.
  names: {found} have one name among {side}
    > Give each image one mask with its name: images/1.jpg and masks/1.png. A mask is a PNG, for
      other formats may change the numbers of classes.
  png: the mask {found!q} is no PNG
    > Give each image one mask with its name: images/1.jpg and masks/1.png. A mask is a PNG, for
      other formats may change the numbers of classes.

invalid-outline: An outline of COCO from which no mask can be drawn.
  > Masks are drawn from COCO's segmentation: polygons [[x1, y1, x2, y2, …]] or run lengths, in
    pixels of the image. Correct these annotations, or remove their images from the file.
  empty: no pixel has a class
  numbers: found numbers, and its outlines have names
    > Leave out source.masks.numbers, and name the categories as source.masks.classes.
  size: the file says that its image has {found} pixels, and the image has {expected}: use the
    images that were labelled
  json: {found}
  form: found {found!q}, expected polygons [[x1, y1, x2, y2, …]] or run lengths
  polygon: found the polygon {found!q}, expected [x1, y1, x2, y2, …]
  long: found a polygon that is {found:,.0f} pixels long, with a coordinate of {far:,}, expected
    corners in pixels of the image
  runs: found run lengths of the size {found!q}, and the image has {expected!s}, its height and
    width
  counts: found run lengths without counts, expected a list or text of them
  run: found a run length that is no number of pixels
  total: found run lengths of {found:,} pixels, and the image has {expected:,}
  damaged: found compressed run lengths that are damaged
  cut: found compressed run lengths that are cut off
  many: found {outlines:outline|outlines} over {found:,} pixels in all, expected at most
    {expected:,}

unclear-exif: Photographs that an EXIF tag turns, where boxes or masks may be of another turn.
  an EXIF tag turns {found:photograph|photographs}, and the recipe does not say whether {marks} are
    of the photographs as turned or as stored
    > Set source.exif to apply if {marks} were drawn on upright photographs, as most programs show
      them and Ultralytics reads them, and to ignore if they were drawn on photographs as stored.
  file: an EXIF tag turns {photographs:photograph|photographs} such as {found!q}, and the file has
    sizes and boxes of photographs as they are {state}
    > Set source.exif to {expected} in the recipe.

changed-data: Data that are no longer what a lock or this run began with.
  pinned: is no longer what was pinned: its files have changed
    > Run it again when nothing writes to the folder. A started build needs the files that it
      started with.
  meanwhile: {expected} images were expected and {found} were read: the data files changed meanwhile
  pool: {found} is not the pool that lock.json pins

hub-refused: The Hub does not allow a request: a token, a right, a name or space is missing.
  token: you have no valid token for the Hub
    > Run `hf auth login`, or set HF_TOKEN.
  rights: not allowed: {found}
    > Check the user or organisation in the name, and that your token may write there (`hf auth
      whoami`).
  missing: there is no such repository or revision, or it is private: {found}
    > Check the name, and which account your token belongs to (`hf auth whoami`).
  conflict: the name is taken, or the repository conflicts: {found}
    > Choose another name.
  quota: the storage quota does not allow it: {found}
    > Free some space, publish under an organisation with more, or build without rejected images.
  large: too much for one request: {found}
    > Lower --files-per-commit.
  other: {found}

hub-unreachable: Data of the Hub that are not on this machine and cannot be fetched now, or a
    transfer that broke off.
  folder: there is no such folder, it is not in the local cache, and the Hub cannot be reached
    > Check the path, or connect and run the same command again.
  commit: is not here at commit {found}, and the Hub cannot be reached
    > Connect once to fetch it.
  whole: is not here as a whole at commit {found}, and the Hub cannot be reached
    > Connect once to fetch it.
  labels: is not on this machine and declares no label names: reading them would download all of it
    > `counterfoil build` fetches it.
  offline: the Hub's client is set to work offline
    > Unset HF_HUB_OFFLINE, connect, and run the same command again.
  fetch: could not be fetched from the Hub: {found}
    > Run the same command again: it resumes.
  tries: gave up after {tries:try|tries}; the last error: {found}
    > What was transferred is kept: run the same command again to resume.
  file: {found}
""")
refusal = message.refusal
failure = message.failure
