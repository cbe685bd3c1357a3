"""The texts of problems with recipes. `docs/reference/errors.md` is made from them.

A line without an indent is a code, with which messages end, and what it means. Its sentences stand
under it: one that bears the name of the code, and others after a word. A gap holds a value: `found`
is what is written, `expected` what may stand there, `hint` begins with the nearest valid name or is
empty. Braces of a text are doubled.
"""

from __future__ import annotations

from counterfoil.errors import MessageTable

message = MessageTable.read(r"""
unknown-key: A key that this section does not have.
  unknown key{hint} (keys here: {keys})

unknown-name: A name that is none of the names that may stand here.
  found {found}, expected {expected}{hint}
  section: unknown name {found}{hint} (names here: {keys})
  failure: found '{found}', expected {expected} or answered:CLASS_ID
  lora: generator.lora has no '{found}'{hint}
  shift: found '{found}', expected base or a shift{hint}

unknown-class: A class id that the list of classes, the base or the shift does not have.
  found '{found}', expected the id of a class{hint}
  section: found '{found}', expected a class that is listed here in `classes`
  shift: found '{found}', expected a class of the shift{hint}
  base: has the class {found}, expected classes that prompts.base.classes lists too

unknown-placeholder: A word in braces that this text cannot be filled with.
  unknown placeholder '{{{word}}}' in '{found}'; expected {expected}{hint}
  only: unknown placeholder '{{{word}}}' in '{found}'; the only one is {expected}{hint}

missing-key: A key that the recipe needs and does not have.
  missing, expected {expected}{about}
  prompt: missing, expected a prompt with '{{class}}', or an `embedding` to draw from
  threshold: missing; the shift has a caption, expected a threshold here or screen.shift_threshold
  clip: missing, expected the CLIP that screens, such as lab:clip
  object-threshold: missing, expected a number or `percentile:`
  address: base_url is missing; '{found}' is no model that runs here, such as
    transformers:HuggingFaceTB/SmolVLM-256M-Instruct, so expected the address of its server
  confidence: confidence_at_least is missing, which {found} needs
  realised: missing, expected the caption whose score `realised:` is measured by
  rows: missing rows, which kind rows needs; or dataset: images that were drawn elsewhere
  corruption: missing, expected a corruption, such as fog

missing-word: A text or a rule needs a word that classes or rows do not have.
  uses '{{{word}}}'{places}, which {classes} not have; expected `{word}` in the list of classes
  parent: found '{found}', but the class {classes} has no `parent` in the list of classes
  caption: uses '{{caption}}'{places}: no row has a caption, expected generator.caption_column or
    generator.captioner

missing-class: A text that does not name the class where it has to.
  found '{found}', expected it to contain '{{class}}'

wrong-type: A value of another type than the key takes.
  found {found}, expected {expected}{hint}
  judge: found '{found}', a file of recorded predictions, expected a classifier that looks at images
  chat-judge: found '{found}', a chat model, expected a classifier with a confidence in every class
  recipe: found {found}, expected a mapping of a recipe's keys
  classes: {found} holds no list, expected a list of classes

out-of-range: A value of the right type that is too small, too large or too long.
  found {found}, expected {expected}{hint}
  judges: at_least is {found}, expected at most the number of judges ({most})
  counts: count_at_most is {found}, expected at least count_at_least ({least})
  held: found {found:g}, with which no step holds a part: base and shifted image are first compared
    as step {ends}; expected at least {least:g}, or 0 to hold none
  row: found {found}, expected rows from 0
  size: saved_size is {found}, expected at most size ({most})

invalid-name: A name that cannot be used as an id, a shift, a group or a dataset.
  classifier: found '{found}', expected the name of a classifier
  detector: found '{found}', expected a detector of transformers, such as
    transformers:google/owlv2-base-patch16-ensemble
  long: found {found} of {length:,} characters, expected at most {most}
  dataset: found {found}, expected letters, digits, '.', '_', '-', as the Hub takes them: a letter
    or digit first, no '-' or '.' last, and no '--', '..' or '.git' at the end
  class: found {found}, expected a slug of letters, digits, '_' and '-' (a dot would break the keys)
  group: found {found}, expected a {what} name of a-z, 0-9 and '_', such as '{expected}'
  reserved: found '{found}', which is reserved ({reserved}); expected another {what} name
  folder: found '{found}', expected a folder that has a name

invalid-text: A text whose form is wrong, such as a prompt with an unmatched brace.
  empty: is empty, expected text
  class: found '{found}', expected a caption of the shift alone, without '{{{word}}}'
  brace: found an unmatched brace in '{found}'; use braces only in {expected}
  key: found {found!r}, expected a key of 1 to {most} printable characters
  key-brace: found '{found}', expected no braces but those of '{{class_id}}'

invalid-value: A value that its section refuses. The line says what is expected.
  {text}

duplicate: A value that may stand only once.
  id: found '{found}' again, expected unique ids (first at classes[{first}])
  slug: found '{found}' again, expected unique ids (first at classes[{first}]); the names '{name}'
    and '{other}' give the same id: write an id for one of them
  class: found '{found}' again, expected each class once
  judge: found '{found}' again, expected each judge once
  row: found a row again, expected each once
  key: found the key '{found}' again, first in line {line}

name-clash: Two different things that would be stored under one name.
  judges: the judges '{first}' and '{second}' would share columns, expected judges whose names end
    differently
  level: a level would be named '{name}', as another shift is; expected another name for one
  keys: the keys of class '{first}' would clash with those of shift '{shift}' and class '{second}',
    expected another shift name or class id

conflicting-keys: Keys of different sections that do not go together.
  caption: no prompt asks for '{{caption}}', expected null
  threshold: a threshold without a caption; expected a `caption` to compare images with
  address: found base_url, and '{found}' runs in the build, expected one of them
  judge: found '{found}', the screening model (screen.model), expected another one: it would agree
    with itself
  lora: found {found}, expected one of generator.lora with by: lora, else null
  held: found with pairs that share only noise, expected none (null drops an inherited one)
  match: match has no severity, expected null
  config: match takes the pairs of a built dataset, expected base: the config of its base images
  captioner: found caption_column and captioner, expected one of them: a row has one caption

quota-conflict: A quota (`samples.accepted`) with a setting that needs every candidate.
  percentile: a percentile over all candidates, but a quota (samples.accepted) stops before all are
    rendered; expected a value here, or samples.candidates instead of the quota
  rule: the rule '{rule}' ranks a whole cell, but a quota (samples.accepted) stops before the cell
    is complete; expected samples.candidates instead of the quota
  levels: a quota (samples.accepted) draws other scenes at each level, expected samples.candidates

open-threshold: A percentile over all candidates with a rule that needs the threshold before.
  a percentile over all candidates with the keep rule '{rule}', which ranks what passes the
    threshold; expected a value

screen-needed: A setting that only a screening CLIP (`screen.model`) can use.
  without screen.model nothing is screened, expected null
  top: 'top' ranks by a score of CLIP, expected one that screens (screen.model)
  embeddings: without screen.model there is no embedding to store, expected false

wrong-kind: A setting that this kind of generator does not take.
  caption: uses '{{caption}}'{places}: only images that are edited have one, expected '{{class}}',
    or generator.kind edit
  same-image: 'same_image' compares an edit with its row, expected it with generator.kind edit alone
  number: only generator.kind corrupt takes a number, expected `levels`
  levels: generator.kind {kind} draws nothing, so it has no levels; expected null
  way: found '{found}', expected {expected} with generator.kind {kind}
  realised: {way} takes no `realised:`, expected a list of levels
  pairs: images of generator.kind {kind} cannot see their base, expected noise
  key: found {found}, expected none with kind {kind} (null drops an inherited one)
  corruption: only generator.kind corrupt corrupts rows, expected null
  corrupted: rows that are corrupted are not drawn, expected null
  corrupted-tokens: rows that are corrupted are not drawn from prompts, expected null
  edited: an edit is rendered from a row and a prompt, not from an embedding; expected null
  row-noise: all samples of a row start from that row, expected paired
  pool-noise: rows of a pool have no noise to share, expected independent
  pool-tokens: rows of a pool are not drawn from prompts, expected null
  pool-embeddings: rows of a pool are not drawn from embeddings, expected null
  retrieved-tokens: a pool is searched by class names, and a CLIP knows no class token, expected
    null
  labels: found labels, expected it only with rows
  columns: found {found}, expected none with rows

pairs-conflict: A setting that cannot be used with `samples.pairs: attention`.
  levels: samples.pairs is attention: a base and its level are one call, with one scale; expected
    another way
  noise: samples.pairs is attention: a pair starts from one noise, expected paired
  batch: found {found}; samples.pairs is attention: a batch holds bases and as many shifted images,
    expected an even number, such as {expected}
  compile: samples.pairs is attention: compiled blocks attend only to their own image, expected
    false
  adapter: samples.pairs is attention: an adapter has its own attention, expected null (null drops
    an inherited one)
  embedding: samples.pairs is attention: a batch of pairs is drawn only from prompts, expected null

levels-conflict: A setting that would give the levels of a shift different scenes.
  noise: samples.noise is independent, so levels would show other scenes; expected noise: paired
  misclassified: 'misclassified' keeps other scenes at each level, expected rules without it
  threshold: mild levels would fail it, expected null: levels have no shift threshold
  embedding: {section} is drawn from an embedding, expected a prompt alone

invalid-levels: Levels that the generator cannot draw or tell apart.
  steps: of {steps} steps, these levels have the shift's prompt in {found}; expected 1 or more, and
    other numbers for other levels
  severities: a corruption has five severities, expected some of 1 to 5, or of {expected}

training-split: Rows of the split that classifiers learn from.
  found '{found}', which classifiers learn from (source.train_split), expected a split that they
    have not seen, such as '{expected}'

file-not-found: A recipe, or a file that it names, does not exist.
  no such recipe{hint}
  bundled: no bundled recipe is called '{found}'{hint}
  in-folder: a folder without recipe.yaml, expected a recipe or a dataset directory
  classes: no such file: {found}; expected a list, or a YAML file of one

unreadable-file: A file that cannot be read, or whose content is no recipe.
  cannot be read: {reason}
  encoding: not UTF-8 text (byte {byte})
  link: cannot be followed: {reason}
  rows: {reason}; expected a CSV file, or a mapping of rows

invalid-yaml: A text that is not YAML, or not YAML as JSON could write it.
  not valid YAML: {reason}
  empty: is empty, expected YAML
  characters: holds characters that are not text (at {position})
  alias: an alias that contains itself
  scalar: found {tag} {found!r}, expected text, a number, true, false or null
  tag: found the tag {found}, expected a plain {expected}
  key: found the key {found}, expected text; put it in quotes

too-large: A file or a value beyond the limits within which recipes are read.
  override: a key of {found:,} parts, expected at most {most}
  text: has {found:,} characters, expected at most {most:,}
  depth: nested too deeply, expected at most {most} levels
  values: more than {most:,} values, those of its aliases counted

invalid-override: A `--set` that is not `KEY=VALUE`.
  expected KEY=VALUE, such as samples.candidates=5

invalid-extends: An `extends` or `extends_sha256` that names no recipe to extend.
  expected one bundled name or path of a recipe
  circle: extends itself: {chain}
  chain: extended over more than {most} files
  sha256: found {found!r}, expected the 64 digits of a sha256
  alone: expected `extends` too: this is the sha256 of the recipe that it names

changed-recipe: The recipe that a layer extends has changed since the layer was written.
  {recipe} has changed since this layer was written: its sha256 was {before} and is now {now}
  classes: the classes of {recipe} have changed since this layer was written

not-in-a-dataset: A dataset's own recipe, with something that `build` does not write.
  found a path; a dataset's own {what} are in {expected}
  extends: a dataset's own recipe cannot extend another recipe
  classes: found a path; a dataset's own recipe lists its classes
  labels: a dataset's own recipe lists its classes, each with its source_label

not-in-a-cut: A cut that changes more than thresholds and keep settings.
  not a threshold{hint}
  scores: changes the scores, so images must be screened again; build the recipe into another
    folder{hint}
  shift: the dataset has no such shift{hint}
  layer: found {found}, expected a layer of thresholds
  mapping: found {found}, expected a mapping
  shifts: found {{}}, which would drop every shift

broken-installation: A part of the installed package is missing.
  the bundled recipes are missing from this installation
""")
