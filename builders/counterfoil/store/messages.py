"""The texts of problems with built datasets. `docs/reference/errors.md` is made from them.

`recipe/messages.py` says how the table is written, and `data/messages.py` what `>` begins. The
packages `store` and `dataset` share this table. `counterfoil verify` says the same sentences, but
with the repair of each file instead of what to do.
"""

from __future__ import annotations

from counterfoil.errors import MessageTable

message = MessageTable.read(r"""
no-dataset: A folder that holds no built dataset.
  is not a Counterfoil dataset: it has no lock.json
    > Name the folder that was given to `counterfoil build --out`.

unknown-group: A group that the dataset does not have.
  has no group {found!r}{hint}
    > Its groups are {expected}.

unusable-output: A place that a command cannot use for what it writes.
  file: is a file, expected a folder
    > Name another folder.
  foreign: is not empty and holds no Counterfoil dataset (no lock.json); it has {found:some}
    > Name an empty or a new folder.
  circle: cannot be written: its links lead in a circle
    > Name another place.
  inside: lies inside the dataset {found}, and would become part of it
    > Name a place outside (--out).
  elsewhere: is a different folder on {machine}, where a worker must write to it
    > Name a folder that all machines share under one path, or add --collect: workers then send
      their files here.

cannot-write: A file or a folder that cannot be written: permission or room is missing, or the disk
    fails.
  forbidden: cannot write here: {found}
    > Choose a folder that you may write to, or change the permissions of this one.
  full: cannot write here: {found}
    > Make room and run the same command again: finished shards are kept.
  no-room: cannot write here: {found}
    > Make room, and run it again.
  disk: cannot write here: {found}
    > Check the disk and the path, and run the same command again: finished shards are kept.
  cache: cannot write here, where answers of models are kept
    > Set XDG_CACHE_HOME to a folder that you may write to.
  home: found no home folder, under which answers of models are kept
    > Set HOME, or XDG_CACHE_HOME, to a folder that you may write to.

in-use: A directory, or a part of a dataset, that another process holds.
  process: is in use by another process{holder}
    > Wait until it ends, or build into another folder.
  parts: is in use: other processes are building parts of it: {found:some}
    > Wait until they end, or build another part with the same N: `counterfoil build … --shards K/N`.
  part: another process{holder} is making part {found}
    > Give each process a part of its own, or wait until that one ends.
  other-parts: is being made in {expected} parts{holder}, found --shards {found}
    > Use the same N in every process, or wait until the others end: parts with another N share
      their shards.
  report: another process{holder} has been writing to it for {minutes:.0f} minutes
    > If a process hangs, end it. Then run the same command again.
  opening: another process has been opening it for {minutes:.0f} minutes
    > If a process hangs, end it. Then run the same command again.

other-build: A directory that was built from another recipe, from other inputs or in other shards.
  > Build into another folder, or restore the recipe that this one was built with.
  plan: was built with another {found}
  inputs: was built from other inputs
  shards: was laid out in other shards
  files: holds files that are not of this plan
    > Move them elsewhere, or build into another folder.
  extent: holds {found}, and you asked for {expected}
    > Build into another folder, or remove this one. A preview's images are the first of the whole
      dataset.

other-stack: A directory that other versions of libraries, or another device, rendered.
  was rendered by another stack, which may change bytes
    > Use the old stack, build into another folder, or pass --allow-mixed (the card will say so).

not-finished: A dataset without all of its shards, or without its manifest.
  is not finished: {found} of {expected} shards are done
    > Run `counterfoil build` with the same --out first; it resumes where it stopped.
  pending: {found:shard is|shards are} not done, the first is {first}
    > Run the same command again.
  manifest: is missing: the dataset is not finished, or this is not a dataset

changed-meanwhile: A directory that changed while a command worked in it.
  removed: was removed while it was being built (it has no lock.json)
    > Nothing more was written there. Run the same command again.
  lock: was removed while the dataset was being built
    > Build it again.
  data: has changed in the meantime, so the results are not stored in it
    > Run the same command again.

missing-file: A file that the recipe, the manifest, a receipt or the candidates need.
  is missing
  candidates: is missing, although candidates list rows of it

changed-file: A file that is not the one that the manifest, a receipt or the lock lists.
  size: is changed: {found} bytes, expected {expected}{by}
  sha256: is changed: sha256 {found:.12}…, expected {expected:.12}…{by}
  entry: does not match its entry in manifest.json
  receipt: is not the file in its receipt
  manifest: is changed: its list of files does not match its own hash
    > `counterfoil verify` names what is damaged and how to repair it.
  lock: is changed: its {found!r} does not match its hash
  groups: is changed: its groups and their shards are not those of the plan
  thresholds: is changed: its measured thresholds are not those that lock.json pins
  embeddings: is changed: its vectors are not those that lock.json pins (lock.json there, the file
    here)
  rows: is changed: its rows are not those that lock.json pins

unexpected-file: A file that belongs to nothing in the dataset.
  is in no receipt
    > Move such files elsewhere, and run the same command again.
  manifest: is unexpected: the manifest does not list it
  plan: is unexpected: the plan has no such shard
  listed: is unexpected: no receipt lists it
  shard: is of a shard that the recipe does not plan
    > Move it out of the directory, or restore the dataset from a copy.

irregular-file: A link, a pipe, or a name that is not text. Such files are not read.
  > Nothing was read or changed. Remove them, or replace them with the files themselves.
  {found}
  name: has a name that is not text, expected UTF-8 without line breaks

too-many-files: A folder with more files than are listed.
  has more than {found:,} files
    > Name the folder of the files that you mean.

damaged-file: A file that cannot be read, or whose content has another form.
  cannot be read: {found}
  details: cannot be read
  folder: cannot be read: {found}
    > Make it readable, or name another one.
  document: {found}
  form: is damaged: {found}

damaged-shard: A shard whose file or receipt is missing, damaged or of another dataset. A build renders
    such shards again, and no others.
  > Repair it: `counterfoil build --from {directory} --out {directory}` rebuilds only damaged
    shards.
  missing: is missing, but {receipt} lists it
  size: has {found} bytes, expected {expected} by {receipt}
  read: cannot be read: {kind}: {found}
  empty: {column} is empty in a row
  number: {column} holds a value that is not a finite number
  rows: has {found} rows, but {receipt} lists {expected}
  dataset: belongs to another dataset: its hashes differ from those in lock.json
  files: lists files of another shard
  tables: lists two files of one table

unplanned-shard: A shard that its receipt proves, but whose rows do not fit the recipe or each other.
  > Remove {directory}/{receipt}, then `counterfoil build --from {directory} --out {directory}`
    rebuilds only its shard.
  accepted: accepts {found:candidate|candidates}, and {receipt} lists {expected} rows of data
  missing: has no row {found}, which the candidates list as accepted
  row: has a row that is not a sample of its shard: {found}
  repeated: has the row {found} more than once

other-version: A document that another version of Counterfoil wrote.
  {found}
    > Restore it from a copy, use the release of Counterfoil that built this dataset, or build into
      another folder.

not-as-pinned: A recipe, thresholds or a model that are not those of lock.json.
  recipe: is not the recipe that lock.json was written for (lock.json there, recipe.yaml here)
    > Restore it from a copy. To change thresholds, use `counterfoil calibrate --apply`. For any
      other change, build another dataset: `counterfoil build RECIPE --out NEW`.
  lock: does not pin models and tokens as a build does
  answers: is not a lock that a build wrote: {found}
    > Restore it from a copy.
  thresholds: differs from the recipe (“there”)
  no-thresholds: lacks thresholds that the recipe takes from validation images
  rows: is not a table of the recipe's rows
  folder: {found}; give its path, as in --set {key}={example}
  commit: lock.json has no commit of {found}, so its version is unknown
  model: {name!r} is not the one that lock.json pins: found {found}, expected {expected}

wrong-receipt: A receipt that contradicts the lock, the plan, the candidates or its own numbers.
  hashes: belongs to another dataset (“there” in the receipt, “here” in lock.json): {found}
  shard: is the receipt of shard {group}-{number:05d}, expected that of its own name
  rows: counts {found} {what}, but lists {expected} rows of them
  of: says that its group has {found} shards, expected {expected}
  shifts: counts the shifts {found}, expected {expected}
  files: lists the files {found}, expected {expected}
  counts: has counts that differ from the candidates: {found}, expected {expected}
  filled: has a wrong record of which candidates filled their cells
  table: lists {found} rows of {table}, which has {expected}

wrong-table: A shard's file with other columns or other features than the recipe gives it.
  columns: has wrong columns: {found}; missing columns: {expected}
  classes: declares features or class names that differ from the recipe's
  members: has repeated members: {found}
  plan: has {found} rows, expected {expected:,} by the plan

wrong-row: A row that the plan, the thresholds, the rules or the candidates contradict.
  value: {column} is {found}, expected {expected}
  number: {column} is {found}, expected a number or none
  no-answer: {column} is none, expected the judge's answer
  contradicted: {column} is {found}, which the answer contradicts
  sample: the plan has no sample with this key in this shard
  candidate: no candidate of this file has this key
  repeated: the key appears more than once
  order: the row is out of order
  missing: the row is missing
  quota: {found} candidates, expected {expected}

wrong-image: An image that does not decode, or that has another form than the recipe says.
  name: its image is named {found}, expected {expected}
  decode: its image does not decode: {found}
  open: cannot be opened as an image: {found}
    > Remove the receipt of its shard and build again: only that shard is rendered again.
  format: its image is {found} in {mode}, expected {expected} in RGB
  size: its image is {found}, expected {expected}
  truth: {found}
  picture: its {column} differs from that of {expected}

other-rendering: A row that is rendered again and comes out as another image.
  same-stack: is wrong in {row}: re-rendered on the same stack, it is {found}{numbers}
  stack: is wrong in {row}: re-rendered, it is {found}{numbers}, more than another stack explains
    ({expected:g} dB)

cannot-rerender: A request of `verify --rerender` that the dataset cannot fulfil.
  option: without --rerender no generator is loaded, so --set changes nothing
    > Add --rerender N, or leave out --set.
  set: only {expected} can be set here
    > --set can only say where the generator is.
  held: holds {found}, which were not rendered
    > Verify it without --rerender.

wrong-card: A card, croissant.json or _info.json that does not fit the receipts and the files.
  read: cannot be read: {kind}: {found}
  metadata: its metadata is {found!q}, expected a mapping
  info: differs from the receipts in its files or rows
  hash: lists the sha256 {expected:.12}… for {file}, but {found}
  no-info: has no entry in dataset_info for {name}
  counts: lists {found} {unit} for {name}, but its files have {expected}
  no-config: has an entry in dataset_info for {name}, which does not exist
  unloaded: has no config that loads {found:some}
  no-yields: has no row for {found} in its table of yields
  yields: has {found} for {row} under {column} in the table of yields, expected {expected}
""")
refusal = message.refusal
failure = message.failure
