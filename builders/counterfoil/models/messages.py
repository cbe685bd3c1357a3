"""The texts of problems with models and their answers. `docs/reference/errors.md` is made from them.

`recipe/messages.py` says how the table is written. After `>` stands what to do: for one sentence, or
under a code for all its sentences without their own.
"""

from __future__ import annotations

from counterfoil.errors import MessageTable

message = MessageTable.read(r"""
unknown-model: A name of a model, of weights or of a part that does not exist here, in the lab, in a
    library or on the Hub.
  kind: there is no kind of {what} {found!r}{hint}
    > A name begins with one of {expected}
  classifier: there is no kind of classifier {found!r}{hint}
    > A name is timm's, or begins with one of {expected}
  captioner: a captioner has no name
    > Name lab:captioner, local-dir:PATH, or one of the Hub.
  chat: a chat model has no name
    > Name one of the Hub (user/name), transformers:user/name, local-dir:PATH, or a model that a
      server has.
  lab-chat: the lab has none
    > Name one of the Hub (user/name), transformers:user/name, local-dir:PATH, or a model that a
      server has.
  provider: expected one of the Hub (user/name, or user/name:provider)
    > An address is base_url; a folder is ./NAME; transformers:user/name answers in this process.
  on-hub: there is no such model or address (404)
    > Correct the model's name.
  on-server: there is no such model or address (404)
    > Correct the model's name, or base_url: it often ends with /v1.
  lab: the lab has no {found!r}{hint}
    > The lab's models are {names}.
  planted: the lab has no {found!r}{hint}
    > The lab's models are {names}. scripts/train_planted.py trains others; name their folder with
      local-dir:.
  tokens: the lab has no tokens {found!r}{hint}
    > The lab's tokens are {expected}.
  timm: is not a timm model{hint}
    > `timm.list_models()` lists the names of timm.
  untrained: timm has the architecture {found!r} but no trained weights for it
    > Name another architecture, or a folder with its weights as local-dir:FOLDER.
  tag: timm has no such weights; it has {expected}
    > Name one of these.
  folder: is a folder
    > Write local-dir:{found} to load a timm model from it.
  slash: is not a timm name
    > Write hf-hub:{found} if it is on the Hub.
  shadowed: a local folder has this name, but the name refers to the Hub
    > Write ./{found} for the folder, or run the command in another directory.
  onnx: names no file, expected onnx:FOLDER
    > Or write onnx:FOLDER/model.onnx.
  open-clip: open_clip has no {found!r}{hint}
  clip-tag: found {found}, expected one of open_clip's tags for {architecture}: {tags}{hint}
  scheduler: diffusers has no {found!q}{hint}
  code: expected python:package.module:function
    > The function takes nothing and returns a torch module and its transform, or takes a batch of
      images.

not-on-hub: A name or a revision that the Hub does not have, or keeps private.
  is not on the Hub, or is private
    > Check the name and revision, or run `hf auth login`.
  name: {found}
    > A name of the Hub is user/name.

untrusted-name: A folder, an address or code that a dataset's recipe names, and you do not.
  folder: is a folder on the machine that built the dataset
    > If you have it and trust it, give its path with --set KEY=PATH or the command's own option.
  address: its address {found:.80} comes from a dataset's recipe
    > If you trust it, give it yourself: --set KEY=ADDRESS, or --models chat:MODEL@ADDRESS.
  code: code is imported only if you name it yourself, not if a recipe, a gate or a dataset does
    > Name it with --models too (mine: --target), or pass it in from Python. A gate does not judge
      what it compares with.

missing-model-file: A file of a model that is not in its folder or repository.
  named: there is no file {found}
    > Correct the path.
  folder: there is no folder {found}
    > Correct the path.
  config: {found} has no {expected}, so it is not {what}
    > Name another folder.
  weights: {found} has a config.json but no weights (model.safetensors)
    > Save the weights into the same folder.
  checkpoints: {folder} has several weights files, and none of the usual name: {found:some}
    > Keep only the one that you mean, with the config.json, in a folder.
  hub-weights: has a config.json but none of {expected}
    > Name another model, or download its weights into a folder.
  safetensors: has no {found}
    > Pickled weights (.bin) may run their author's code and are not read: save it again as
      safetensors.
  shard: {index} lists {found}, which is not there
    > Download the model again.
  processor: {found} has no {expected}, so it does not say how images are prepared
    > Save the image processor into the same folder: processor.save_pretrained(FOLDER)
  tokenizer: {found} has no {expected}
    > Save its tokenizer into the same folder in the current format:
      tokenizer.save_pretrained(FOLDER)
  onnx: found {found}, expected one
    > Write onnx:FOLDER/model.onnx.
  deployed: {found} has no config.json, so it does not say how images are prepared
    > As in {{"architecture": "mine", "num_classes": 2, "label_names": ["cat", "dog"],
      "pretrained_cfg": {{"input_size": [3, 224, 224], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5,
      0.5], "crop_pct": 1.0, "interpolation": "bilinear"}}}}, or the files that Optimum exports.
  detector: {found} has no config.json, so it does not say how images are prepared
    > `counterfoil init --detector {file}` writes one.

disk-refused: A disk that is full, or a path that may not be read or written.
  {found}

unreadable-model: A file of a model or of answers that cannot be read: it is damaged, a pipe, or of
    another form.
  file: {found}
  read: cannot be read: {found}
  weights: its weights cannot be read: {found}
  damaged: its weights file is damaged: {found}
    > Download or save it again.
  json: is not readable JSON: {found}
  mapping: should hold a JSON mapping, not {found}
  shard: {index} lists {found}, expected safetensors
    > Save the model again, as safetensors.
  pickle: cannot be read as weights alone: {found}
    > A pickle may run its author's code, so nothing else of it is read. Name a model with
      safetensors.
  unnamed: holds no weights by name, which a model's file does
    > Save model.state_dict(), as safetensors.
  declares: declares more numbers than it holds
    > Save the weights again, as safetensors.
  packed: is a packed archive, and torch's own are not packed
    > Save the weights again, as safetensors.
  external: could not be loaded: its weights are in other files
    > Save it as one file: onnx.save(onnx.load({file!r}), 'model.onnx').

invalid-config: A configuration of a model with a wrong or absurd value, or one that names code or
    other files.
  > It is not loaded: correct its configuration, or name another model.
  {found}
  built: nothing can be built from its configuration: {found}
  made: no {expected} can be made from its files: {found}
  parts: its processor does not take images and texts
  prepared: its image processor gives {found!s}, expected [channels, height, width]
  boxes: {found} makes no boxes of a model's outputs
  crops: its configuration crops or pads images, so that its answers are not of the whole image
    > Write "crop_pct": 1.0 and "crop_mode": "squash", and no padding.
  partial: its image processor sets {found}, so that scores are not of the whole image
    > Set it to false in preprocessor_config.json, if the model takes whole images.
  label-names: its config.json has no label_names
    > Name its labels or classes, in order.
  embeddings: unet/config.json does not say which image embeddings it takes
  template: has no chat template of the name default
  no-token: the tokens that end a caption are none of its {found:,}
  no-end: nothing says which of its {found:,} tokens ends an answer
    > Give its eos_token_id in config.json or generation_config.json.
  end: its configuration does not say which token ends a caption
    > Give its eos_token_id in config.json or generation_config.json.
  start: its configuration does not say which token begins a caption
    > Give its decoder_start_token_id or bos_token_id in config.json.

misfit-weights: Weights that do not fit their configuration, or that hold numbers that are not
    finite.
  missing: its weights do not hold {found:some}, which would be random
    > Name a model with complete weights that was trained for this, or correct its configuration.
  layers: its weights hold layers that its configuration does not have, such as {found}
    > The configuration and the weights belong to different models.
  larger: its configuration asks for {found}, and its weights ({files}) have {expected:,} bytes
    > The configuration and the weights belong to different models.
  ids: its tokenizer gives the id {found}, and its text encoder has {expected:,} embeddings
    > The tokenizer and the text encoder belong to different models: correct its folder, or name
      another model.
  infinite: its weights hold numbers that are not finite: {found:some}
    > Name another model, or repair this one's weights.
  head: has weights for {found:,} outputs, and config.json says {expected:,}
    > Correct num_classes and label_names in config.json: a name for each output, in the order of
      training.
  lacking: it lacks {found:weight|weights} of the model: {names:some}
    > Save the weights with the model's own names (model.state_dict()), or correct the architecture
      in config.json.
  more: it has {found:weight|weights} of another: {names:some}
    > Save the weights with the model's own names (model.state_dict()), or correct the architecture
      in config.json.
  shape: {weight} is {found!s}, expected {expected!s}
    > Save the weights with the model's own names (model.state_dict()), or correct the architecture
      in config.json.
  prefix: names begin with {found!r}: without it, {expected:,} would still be missing
    > Save the weights with the model's own names (model.state_dict()), or correct the architecture
      in config.json.

unfit-model: A model of another kind than the work needs.
  weights: is a file of weights, which does not say of which network
    > Save its network and its weights in a folder once, timm.models.save_for_hf(model, 'my-model',
      safe_serialization=True), and name local-dir:my-model. Or pass the module from Python:
      counterfoil.evaluate(dataset, model, transform=transform).
  weights-of-folder: is a file of weights, which does not say of which network
    > Name its folder: {found}
  of-timm: it is a timm model: name it hf-hub:NAME, or local-dir:FOLDER
  headless: has no classification head
    > Name a classifier.
  inputs: {found} does not take images alone
    > Name a model of images.
  channels: wants images of {found} channels; a dataset's are RGB
    > Name a model of RGB images.
  images: takes no images of {found!s}: {reason}
    > Its configuration must prepare images of the size that the network takes.
  shape: gives outputs of shape {found!s} for {images} images; expected {expected!s}
  features: the head of {found} does not take one vector per image
  no-features: this kind of model gives no features
    > Name a timm model or a CLIP.
  no-hash: its content has no hash, so its features cannot be kept
    > Name a timm model or a CLIP.
  recorded: is a file of predictions: it cannot score images that it has not seen
    > Name the model itself.
  examples: takes no examples: a {found} model sees only one image
    > Leave the examples out, or name a chat model that takes images.
  captioner: answers no questions: a {found} model only writes captions
    > Name a chat model that takes images.
  token: no token reads as {found!q}, so its likelihood is not known
    > Name another model, or other options.
  outputs: several outputs are as wide as config.json has classes: {found}
    > Name the one that scores them in config.json: "output": {first}.
  one-output: its graph gives {found}, expected one output
    > Name the one with scores in config.json: "output".
  graph-scores: for {images} images the graph gives {found}, expected {expected!s}{called}, a score
    for each output of config.json
  graph-input: its graph takes {found}, expected one input of floats [{expected}, 3, height, width]
  detector: its graph gives {found}, expected boxes, scores and labels
    > `counterfoil init --detector {file} --force` looks at the graph and writes what must be known
      of it into config.json. {ways}
  size: its graph takes images of {found!s}, and config.json prepares {expected!s}
    > Correct input_size in config.json, or the size of the image processor.
  vast: its graph takes {images:,} images of {sides!s} at once, {found:,} bytes, expected at most
    {expected:,}
    > Export it with a smaller batch, or with a free one.
  tokens: {found!r} is {family}, which cannot load class tokens
    > Prompt by class name, with `tokens: null`.
  blocks: {found!r} draws with a {kind} without repeated blocks, so there is nothing to compile
    > Leave generator.compile out.
  offload: {found} does not say in which order its parts run, so they cannot be moved part by part;
    expected sequential or none

pipeline-setting: A setting of a recipe that the generator's pipeline does not take.
  family: {found!r} is {kind}; expected one of {expected}
  adapter: sequential holds layers that the adapter must change; expected model or none
  layers: found with quantize, compile or offload sequential; expected unchanged layers
  tokens: {found}, which takes no class tokens; expected null: prompts then name the classes
  learn: {found}, for which none can be learned here; expected tokens.path, or tokens null
  side: found {found}; {its}, which draws {expected} pixels a side and nothing else; expected null:
    generator.saved_size stores smaller images
  multiple: found {found}; {its}, which draws multiples of {expected}, such as {near}
  least: found {found}; {family} edits images of {expected} pixels a side or more
  pairs: {found}, whose images cannot attend to their base; expected noise
  level: {found}, whose prompts encode to different shapes: no level lies between two; expected null
  level-steps: {found}, whose prompt cannot change between two steps; expected by: prompt
  level-mix: {found}, which edits by a call of its own; expected null, or a model that inverts images
  lora: {found}, which takes no LoRA weights here; expected none
  guided: {found}, which is guided in every step; expected null
  distilled: {found!r} is distilled: its guidance is an input, and every step asks it once; expected
    null
  sizes: found options {found}, expected none together with it
  image: {found}, which draws from an image alone; expected another one, or generator.kind edit
  no-edits: {found}, which edits no image; expected Stable Diffusion 1.x, 2.x or XL, or a pipeline
    that edits
  invert: {found}, which is distilled or renders differently, so it cannot invert images; expected
    its teacher
  scheduler: found {found!r}; images are inverted by {expected}, expected null or {expected!r}
  odd: found {found}; half of a batch are rows and half their edits, expected an even number
  cut-short: an image is inverted over all steps and drawn over all of them; expected none
  option: found {found}, expected {expected}
  no-option: a call of {found} takes no such option{near}
  option-of-key: a recipe sets it with {found}, not as an option
  option-of-batch: it is set for each batch, not as an option
  option-of-objects: {found} takes there what no recipe can say (pictures, tensors, functions,
    files)
  no-negative: {found} takes none, expected null
  negative: {found} reads it where generator.options.{option} is above {expected:g}, expected that,
    or null

unmendable-model: A model whose head cannot be fitted or saved.
  saved: only timm models can be saved to a folder
  shape: a head of {found!s} does not fit one of {expected!s}
  finite: the numbers of its head are not all finite
  prepared: the saved model would prepare images differently or name other outputs
  more: its last layer does not reproduce its logits from its features: they differ by {found:.3g},
    and rounding explains at most {expected:.3g}
    > The model computes something after its last layer. Only models whose head is a single Linear
      can be mended: timm models and your own torch modules.
  kind: the head of {found} cannot be refitted
    > Only models whose head is a single Linear can be mended: timm models and your own torch modules.
  head: the head of {found} is not a single Linear: {reason}
    > Only models whose head is a single Linear can be mended: timm models and your own torch modules.
  object: is a {found}: it has no last layer to refit
    > Pass a torch module, or name a timm model.
  bias: {found} has no Linear with a bias of {expected:,} outputs
    > Only models whose head is a single Linear can be mended: timm models and your own torch modules.
  calls: its last Linear is called {found:time|times}, expected once
    > Only models whose head is a single Linear can be mended: timm models and your own torch modules.

mended-folder: A folder that a mended model cannot be written to or removed from.
  other: is not the folder of a mended model: {found}
    > Name a new folder, or remove this one.
  beside: exists and is not a folder with a model
    > Remove it.
  written: cannot be written: {found}
  removed: cannot be removed: {found}

failed-model: A model that fails, gives no numbers, or changed during a run.
  load: could not be loaded: {found}
    > Check that its files belong together, or name another model.
  computing: cannot {doing}: {found}
    > Check its configuration, or name another model.
  device: failed on {found}: {reason}
  batch: failed with a batch of shape {found!s}: {reason}
    > A torch module is given a tensor, any other callable a numpy array, stacked from what transform
      gives.
  function: {found}() failed: {reason}
  graph: could not {doing}: {found}
  ended: could not {doing}: its process ended with {found}
    > The file may be damaged, or memory ran out.
  late: could not {doing} within {found:,g} seconds
    > If you trust it, allow more: COUNTERFOIL_GRAPH_SECONDS={more:g} (seconds an image).
  template: its chat template cannot be rendered: {found:.300}
    > Correct the template, or name another model.
  scores: its scores of this image are not numbers
  boxes: gives boxes or scores that are not finite numbers
  infinite: gives outputs that are not finite numbers
  answers: gives {found}
  head: its head takes {expected}, and the model gave {found}
  file: its file changed while it was read
    > Run it again.
  changed: changed while the run started: its outputs differ now
    > Run it again.
  other: has other weights on a worker than where the run started, or other versions of libraries
    > Give every machine the same files and libraries, or name a commit.

out-of-memory: Work that needs more memory than is free.
  machine: out of memory{found}
    > End other programs there, or choose something smaller.
  device: out of memory on {found}: it cannot {doing}
  graph: could not {doing} within {expected:.1f} GiB of memory: {found}
    > If you trust it, allow more: COUNTERFOIL_GRAPH_GIB={more} (GiB beside weights and images).
  batch: ran out of memory on {found} with a batch of {expected}
    > Run it again with a smaller --batch-size; finished models are kept.
  images: takes images of {height:,} x {width:,} pixels: batches of {batch} need {found:,.1f} GB of
    memory, and {expected:,.1f} GB are free
    > Run it on a machine with more memory.
  smaller: takes images of {height:,} x {width:,} pixels: batches of {batch} need {found:,.1f} GB of
    memory, and {expected:,.1f} GB are free
    > Set --batch-size {fitting} or smaller.

unavailable: A model or data that are not on this machine, and cannot be fetched or asked now.
  cache: is not in the local cache and the Hub cannot be reached
    > Connect once to fetch it, or name what is here: lab:… or a folder.
  pin: is not in the local cache and the Hub cannot be reached
    > Connect once to fetch it, give its commit as `revision`, or name a local-dir: or lab: model.
  answer: could not be fetched: the Hub {found}
    > Run the same command again later.
  provider: cannot be reached ({found})
    > Connect, and run the same command again.
  offline: the Hub's client is set to work offline
    > Unset HF_HUB_OFFLINE, and connect.

access-denied: What the Hub or a server does not give to you: a login, a key, a right or a payment is
    missing.
  gated: is gated: the Hub gives it only to people with access
    > Ask for access on its page, and log in: `hf auth login`.
  hub: the Hub denies this login access ({found})
    > Run `hf auth login`, or ask its owner for access.
  login: the Hub's providers need a login, and you are not logged in
    > Run `hf auth login`, or set HF_TOKEN.
  characters: {found} holds characters that a request cannot carry
    > Set it again, without line breaks.
  key: refuses {found} (401)
    > {login}
  right: the key that it was given may not use it (403)
    > {login}
  payment: needs payment (402)
    > Check the account's credit. Answers are kept: run the same command again to resume.

chat-server: A server of a chat model whose address is missing or wrong, or whose answer cannot be
    used.
  > Answers are kept: run the same command again to resume.
  address: {found}
    > Give its server's address, such as http://localhost:8000/v1.
  in-process: runs in this process, not at {found:.80}
    > Leave the address out.
  no-address: has no address
    > Give its server's base_url, such as http://localhost:8000/v1; to run it in this process, name
      transformers:NAME or local-dir:PATH.
  classifier: has no address
    > Name chat:MODEL@ADDRESS, such as chat:qwen@http://localhost:8000/v1; to run a model in this
      process, chat:transformers:NAME or chat:local-dir:PATH.
  no-url: this is not an address
    > It begins with http:// or https://.
  unreachable: cannot be reached ({found})
    > Start the server, or correct base_url.
  late: no complete answer in {found:g} seconds
  silent: no data for {found:g} seconds
  busy: too many questions{found} (429)
    > Wait. Answers are kept: run the same command again to resume.
  no-http: its answer is not HTTP: {found}
  compressed: its server compressed the answer without being asked to
  large: its server's answer has more than {found:,} bytes
  protocol: its server's answer is not OpenAI's protocol: {found}
  text: its server's answer is {found}, expected text
  status: answers {found}: {shown}

unusable-device: A device, a compiler or a setting of this machine that cannot be used.
  name: cannot be used: {found}
    > Use auto, cpu, cuda (every GPU), cuda:1 or cuda:0,cuda:2.
  several: found {found!q}, expected one: this work takes a single device
    > Name one device.
  compiler: torch compiles for {found} with {expected}, which does not work here
    > Install it, or leave generator.compile out.
  quantize: {quantize} needs a GPU, and this is {found}; expected torchao-int8 or null
  provider: {found}
    > Install onnxruntime-gpu for a GPU, or use --device cpu.
  setting: found {found!q}, expected a whole number from 1 to 999,999

missing-package: A package that is not installed, or of another version.
  {needing} needs {found}, which is not installed{install}
  onnx: needs ONNX Runtime, which cannot be imported: {found}
    > Install it: pip install 'counterfoil[onnx]'.
  diffusers: gives {found} outputs, expected {expected}: {outputs}
    > This version of diffusers is not known: install one that pyproject.toml allows.

invalid-predictions: A file of predictions that cannot be read, or of which it is not clear what is
    an answer.
  ending: is not a file of predictions: expected .parquet, .csv, .json or .jsonl
    > Name a file with one of these endings.
  read: cannot be read: {found}
    > docs/how-to/evaluate.md shows what a file of predictions holds.
  columns: has {found:,} columns, expected at most {expected:,}
  labels: has more than {expected:,} different labels
  repeated: has the column {found!q} more than once
    > Keep one of them.
  keys: has the columns {found}; expected key (or path or row), then a column of scores for each
    class, or one column with the answers
    > Call the column of the images key or path, as evaluate --write-keys FILE does.
  no-answers: has the columns {found}, and no answers
    > Add a label, or scores for each class.
  no-class: {found:column of numbers names|columns of numbers name} no class: {columns}
    > Remove them if they are no outputs of the model. If they are, call every output score_NAME:
      score_{first:.40}.
  sets: has several columns for each class, which answer differently, such as {found}
    > Keep the scores of one model: the others may be another model's, or the true labels.
  ranks: has the best answers of each image in columns such as {found}, expected a score for each
    class
    > Call each column of scores by its class. Or keep the first answer alone, as label.
  several: has the columns {found} beside the key, and several of them may be the answers
    > Keep one column of answers beside the key: one of the others may be the true label.
  label: has the columns {found} beside the key, and several of them may be the answers
    > If {answer!r} holds the answers, keep it alone beside the key: it may be the true label.
  two-classes: has the {column} {found!q}, which is the name of two classes of the dataset
    > Write the column class_id, with ids as evaluate --write-keys FILE lists them.
  two-ways: the column {found!q} may hold names of classes or ids, and these differ
    > Write the names as text in a column label, with words that no id has, or ids as evaluate
      --write-keys FILE lists them in a column class_id, with their zeros.
  score: has a score that is not a number for {found!q}, in column {column!q}
    > Write a score for each image and each class.

unmatched-images: Answers whose images are not clear, and images without an answer.
  several: {found!q} fits several images
    > Write the key of each image, as `evaluate --write-keys FILE` lists it.
  many: {found!q} fits several images, and {more:more line does|more lines do}
    > Write the key of each image, as `evaluate --write-keys FILE` lists it.
  rules: its paths fit the dataset's in more than one way: {found!q} may be {expected}
    > Write each path as `evaluate --write-keys FILE` lists it.
  none: no {found} is an image of these
    > evaluate --write-keys FILE lists all keys and paths.
  row: has row {found:,}, and there are {expected:,} images
    > Count rows from 0, as evaluate --write-keys FILE lists them.
  unnamed: has rows without a {found}
    > Name the image of each answer.
  preview: identifies images by row, and a preview does not have every row
    > Identify images by key or path, or leave out the limit.
  twice: has more than one answer to {found}
    > Keep one of them.
  missing: has no answer to {found:,} of {expected:,} images: {names}
    > A file of predictions cannot score images that it has not seen: score them, and add their
      rows.

unmatched-classes: Outputs of a model that cannot be matched with the classes of the dataset.
  > Names decide which output is right; each may stand for one class and one output only.
  none: needs class names, but there are none here
    > Name a dataset that has classes.
  many: a question lists at most {expected:,} classes, and the dataset has {found:,}
    > Evaluate a dataset of fewer classes.
  alike: answers cannot tell these classes apart: {found:some}
    > Give them names that differ in more than punctuation.
  never: {never:class is|classes are} never answered, and {found:answer is|answers are} no class:
    they may be the same under two names, in the column {column!q}
    > Write the names of the dataset's classes as label, or their ids as class_id, as evaluate
      --write-keys FILE lists them. Write (another label) for an answer that is none of them, which
      counts as wrong.
  label: gives the labels {found!s}, expected a label from 0 to {expected}: {where} names so many
    > If its labels count from 1, name a first label in {where} that stands for none, such as
      background.
  folders: has {found} outputs without names, the dataset keeps {expected:class|classes}, and the
    names of the other folders are not known: training programs may sort them differently
    > Save the names with the model: label_names in the config.json of a timm folder, or an
      attribute label_names. `evaluate` also takes the order in which it was trained: --class-order
      position (torchvision's), --class-order timm, or --class-order FILE with the class of each
      output on a line.
  sorted: does not tell the names of its outputs, and training programs sort these classes
    differently, from the {found}. on:
    > Save the names with the model: label_names in the config.json of a timm folder, or an
      attribute label_names. `evaluate` also takes the order in which it was trained: --class-order
      position (torchvision's), --class-order timm, or --class-order FILE with the class of each
      output on a line.
  timm: timm's order of {found:class folder|class folders} is not known, because the recipe leaves
    some out, or calls them by other names, or names differ in nothing that timm sorts by
    > Give --class-order a file with the class of each output on a line.
  no-index: has ImageNet outputs, but {found} of {expected} classes of the recipe have no `imagenet`
    indices: {names:some}
    > Add `imagenet: [indices]` to these classes.
  outside: classes with `imagenet` indices outside 0 … {expected}: {found:some}
    > Correct the indices in the list of classes.
  outputs: has {found:output|outputs}, and the classes need {expected:,}, one for each source label:
    {names}
    > Name the outputs: label_names in the model's config.json, or --class-order FILE with the class
      of each output on a line. A class of the training may have no image here, such as an empty
      folder: it needs its line too.
  one: has {found:output|outputs}, and the classes need {expected:,}, one for each source label:
    {names}
    > Name a model with an output for each class.
  two: has {found:output|outputs}, and the classes need {expected:,}, one for each source label:
    {names}
    > One output is the score of one class against the other. Give a score for each class: write a
      function that returns two columns, [1 - p, p], and name it: --models python:FILE:FUNCTION.
  imagenet: has {found:output|outputs}, and the classes need {expected:,}, one for each source
    label: {names}
    > The recipe's `imagenet` indices need a model of ImageNet's 1,000 outputs.
  no-indices: has {found:output|outputs}, and the classes need {expected:,}, one for each source
    label: {names}
    > Add `imagenet: [indices]` to the recipe's classes to score models of ImageNet's 1,000 outputs.
  names: has {found:output|outputs}, and {whose} {expected:name|names}
    > Give a name for each output: correct label_names, or --class-order FILE.
  several: {found!r} is the name of the outputs {expected}
  shared: output {output}, {found!r}, has the names of two classes: {owners}
  missing: {found} of {expected} classes have no output of their name
    > Name the classes in the recipe (name or id) as the model names its outputs, or say which class
      each output is: `evaluate --class-order FILE`, with a class on each line.
  no-column: {found} of {expected} classes have no output of their name
    > Add a column of scores for each of them, with the class's name or id as its own.
  one-label: gives one label per image, but an image may have several conditions
    > Write a column of scores for each: {found}.
  condition: {found} row of {rows:,} has it: no threshold can be chosen
    > Leave these conditions out, or choose thresholds on rows that have and lack them.

invalid-callable: A callable, a transform or code in Python that is no model.
  model: is {found}, which cannot be called
    > Pass a function or a module.
  no-function: its transform is {found}, which cannot be called
    > Pass a function or a module.
  transform: its transform failed: {found}
  array: its transform gives {found}, expected an array of numbers
  no-transform: is a torch module without a transform: how it takes images is not known, and a wrong
    size or normalisation lowers every accuracy
    > Pass the transform that it was validated with as transform=. Usual ones, with `import
      torchvision` and `from torchvision import transforms as T`:{lines}
  shapes: its transform gives images of shapes {found!s} and {expected!s}, but a batch needs one
    shape
    > Resize every image to one size in the transform.
  shape: gives scores of shape {found!s} for a batch of one image; expected [1, classes]
  scores: gives {found}, expected scores [batch, classes]: {reason}
  large: gives scores such as {found:.3g}, larger than float32 holds (3.4e38)
    > Scores are logits or probabilities: divide them, or take their logarithm.
  label-names: its label_names are {found}, expected a list of texts
    > List the name of each output in order: label_names = ['cat', 'dog'].
  answers: {found} answers to {expected} images, expected one an image
    > Return an answer for each image of the batch.
  import: {module} cannot be imported: {found}
    > It is looked for among the installed packages and in {folder}.
  unknown: {module} has no {found}{hint}
    > Name a function of this module.
  value: {module} has a {kind}, and no function, {found}{hint}
    > Name a function of this module.
  listed: found a {found} in a list, expected names of models
    > Give each callable a name: {{"mine": model}}
  alone: needs a callable, and none is given
    > Pass one: {{"mine": model}}
  of-none: there is no callable {found!r}{hint}
    > Name a callable that you pass.
  name: expected a printable name that no other run in this process uses
    > Give it another name.

invalid-adapter: LoRA weights, an IP-Adapter or class tokens that cannot be used with the generator.
  files: has {found} safetensors files, expected {expected}, or only one
    > Name the file.
  ending: {found} is not a safetensors file, and only safetensors files are read
    > Save it as safetensors.
  form: found {tensors} tensors ({found:.200}, …), expected an IP-Adapter that takes one image
    embedding, without parts of an encoder or LoRA weights
  numbers: {found:.80} holds no finite floating-point numbers; it is not loaded
  layers: has {found} layers, and the generator attends to prompts in {expected}
    > Name the adapter that was made for this generator.
  vectors: vectors for {found} text encoders, expected {expected} by {model}
    > These tokens were learned for another text encoder: name or learn some for this one, or prompt
      by class name with `tokens: null`.
  width: width {found}, expected {expected} by {model}
    > These tokens were learned for another text encoder: name or learn some for this one, or prompt
      by class name with `tokens: null`.
  taken: is already in the vocabulary of {found}
    > Rename the tensor in the token's file, such as '<bag>'.
  pinned: found {found}, expected sha256 {expected}; --set {key}=/PATH says where the file is
  sha256: has the sha256 {found}, expected {expected}
    > Restore the file that the dataset was begun with.
  size: has {found:,} bytes and a head of {head:,}, expected a safetensors file of at most
    {expected:,} with a head of at most {most_head:,}
  tensors: found {found:,} tensors, expected 1 to {expected:,}
  settings: {found}
  infinite: found numbers that are not finite: {found:some}
  overflow: found numbers that are not finite in {type}: {found:some}
  unknown: expected matrices down and up of rank 1 to {expected:,}, and alphas, in {types}; found:
    {found:some}
    > DoRA, LoKr, LoHa, biases and whole layers are not used.
  half: there is no other half of: {found:some}
  unread: diffusers does not read these tensors as they are: {found:some}
    > Load the file with diffusers and save it with save_lora_weights, which writes weights as they
      are used.
  layer: the generator's {part} has no layer for: {found:some}
    > Weights of text encoders are not used.
  shape: {shapes} do not fit a layer of {layer!s}: {found:some}
  alpha: found the alpha {alpha:g}, expected a finite number above 0: {found:some}
  alphas: there are no matrices for the alphas of: {found:some}

unfit-input: An image or a text that a model cannot take.
  resized: an image of {width:,} x {height:,} pixels would be resized to {found:,} x {expected:,}
    > Remove this image: nothing can be seen in it.
  image: its image processor cannot prepare an image of {found}: {reason}
  none: no image can be decoded to try it with
    > Check the images of the dataset.
  undecodable: {found} has no image that decodes
    > Remove or replace it.
  decoded: an image cannot be decoded otherwise: {found}
  corrupted: an image has {found} x {expected} pixels for a model, and corruptions need {least} a
    side
  prefix: {found!q} is {tokens} tokens long, and its captions have at most {expected}
    > Shorten it.
  caption: {found!q} is {tokens} tokens long with its end, and its captions have at most {expected}
    > Shorten the caption.
  question: a question of {found:,} tokens leaves no room for an answer, because it reads at most
    {expected:,}
    > Name a model with a longer context.

unfit-rule: A rule of failures that a model or the classes cannot answer.
  class: no class has the id {found!r}{hint}
    > As in answered:{first}.
  ranked: the rule {rule!r} reads the first {expected} answers, and the classifier ranks {found}
    > Set {key}=top1.
  parents: the rule {rule!r} needs the parent of every class, and {found:,} have none, such as
    {first!r}
    > Write `parent` in the list of classes, or set {key}=top1.

call-limit: More questions to a server than are allowed.
  needs {found:,} calls of its server{before}, one an image, and {expected:,} are allowed
    > evaluate takes --most-calls N to allow more, and --limit N to answer fewer images.
""")
refusal = message.refusal
failure = message.failure
