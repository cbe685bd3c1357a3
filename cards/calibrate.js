"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const NEAR = 6, BARS = 60, STRIP = 8, KEPT = 1, VISIBLE = 2;
const byId = id => document.getElementById(id);

// The scores of all candidates, unit after unit (the base and the shifts); none on a page of very many.
function unpacked(text, Kind) {
  return new Kind(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer);
}
const rows = data.exact ? {
  shift: unpacked(data.rows.shift, Float32Array), object: unpacked(data.rows.object, Float32Array),
  label: unpacked(data.rows.label, Uint16Array), flags: unpacked(data.rows.flags, Uint8Array),
  contrast: data.rows.contrast ? unpacked(data.rows.contrast, Float32Array) : null,
} : null;
let end = 0;
for (const unit of data.units) {
  unit.from = end;
  end = unit.to = end + unit.scored;
  unit.line = unit.threshold === null ? -Infinity : Math.fround(unit.threshold);
  unit.dark = unit.contrast === null ? -Infinity : Math.fround(unit.contrast);
  unit.sliders = [];
}
const unitOf = new Uint16Array(data.exact ? end : 0);
data.units.forEach((unit, at) => { if (data.exact) unitOf.fill(at, unit.from, unit.to); });
for (const group of data.groups) {
  group.least = Float32Array.from(group.values);
  for (const at of group.units) data.units[at].least = group.least;
}

// What a candidate reaches, as a build compares it: score >= threshold, both of them float32.
const reaches = {
  shift: row => rows.shift[row] >= data.units[unitOf[row]].line,
  object: row => rows.object[row] >= data.units[unitOf[row]].least[rows.label[row]],
  contrast: row => rows.contrast === null || rows.contrast[row] >= data.units[unitOf[row]].dark,
};
const KINDS = Object.keys(reaches);
function accepted(row, but) {
  return (rows.flags[row] & VISIBLE) !== 0 && KINDS.every(kind => kind === but || reaches[kind](row));
}

// A slider: which candidates it is of, where its line stands, and what each of its steps accepts.
function made(kind, section, about) {
  const slider = { kind, section, ...about, input: section.querySelector("input"), pictures: [], stale: true, seen: false };
  slider.value = slider.starts.length ? slider.starts[0].value : slider.thresholds[0];
  slider.first = slider.value;
  if (data.exact) {
    const list = [];
    for (const at of slider.units) {
      const unit = data.units[at];
      for (let row = unit.from; row < unit.to; row++) {
        if (kind !== "object" || rows.label[row] === slider.label) list.push(row);
      }
    }
    slider.rows = Uint32Array.from(list);
    const edges = Float32Array.from(slider.thresholds, Math.fround);
    slider.bins = Uint16Array.from(slider.rows, row => above(edges, rows[kind][row]));
  }
  data.pictures.forEach((picture, at) => {
    if (slider.units.includes(picture.unit) && (kind !== "object" || picture.label === slider.label)) slider.pictures.push(at);
  });
  slider.pictures.sort((one, other) => scoreOf(slider, one) - scoreOf(slider, other));
  for (const at of slider.units) data.units[at].sliders.push(slider);
  return slider;
}
// How many of ascending edges a score reaches.
function above(edges, score) {
  let low = 0, high = edges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (score >= edges[middle]) low = middle + 1; else high = middle;
  }
  return low;
}
const scoreOf = (slider, at) => data.pictures[at][slider.kind];

function counted(slider) {
  const steps = slider.thresholds.length;
  if (!data.exact) {
    const at = nearestStep(slider, slider.value), start = slider.starts.find(each => each.value === slider.value);
    slider.now = { accepted: start ? start.accepted : slider.accepted[at], missing: slider.missing[at] };
    return;
  }
  const all = new Uint32Array(steps + 1), good = new Uint32Array(steps + 1), line = Math.fround(slider.value);
  let now = 0, missing = 0;
  slider.rows.forEach((row, place) => {
    const others = accepted(row, slider.kind);
    all[slider.bins[place]] += 1;
    if (!others) return;
    good[slider.bins[place]] += 1;
    if (rows[slider.kind][row] >= line) {
      now += 1;
      if (!(rows.flags[row] & KEPT)) missing += 1;
    }
  });
  const sums = counts => {
    const reached = new Array(steps);
    for (let step = steps - 1, sum = 0; step >= 0; step--) reached[step] = sum += counts[step + 1];
    return reached;
  };
  slider.atOrAbove = sums(all);
  slider.accepted = sums(good);
  slider.now = { accepted: now, missing };
}
function nearestStep(slider, value) {
  let best = 0;
  slider.thresholds.forEach((each, at) => { if (Math.abs(each - value) < Math.abs(slider.thresholds[best] - value)) best = at; });
  return best;
}

// Three digits say what a person can see; the YAML and the counts have all of them.
const short = (slider, value) => (slider.kind === "contrast" ? String(Math.round(value)) : value.toFixed(3));

function shown(slider) {
  const { section, input, now } = slider, share = slider.candidates ? 100 * now.accepted / slider.candidates : 0;
  const said = `${now.accepted} of ${slider.candidates}`;
  const place = section.querySelector(".threshold");
  place.textContent = short(slider, slider.value);
  place.dataset.value = slider.value;
  section.querySelector(".yield").textContent = `accepts ${said} (${share.toFixed(1)} %)`;
  const summary = section.querySelector(".summary");
  if (summary) summary.textContent = visibility(slider);
  const missing = now.missing ? `${now.missing} of these images were not kept: this cut needs a new build.` : "";
  section.querySelector(".warn").textContent = missing;
  input.value = nearestStep(slider, slider.value);
  input.setAttribute("aria-valuetext", `${short(slider, slider.value)}: accepts ${said}, ${share.toFixed(1)} %${missing ? ". " + missing : ""}`);
  section.querySelectorAll(".starts button").forEach((button, place) => {
    button.setAttribute("aria-pressed", String(slider.starts[place].value === slider.value));
  });
}

// How visible the images of a shift are that all but the contrast accepts.
function visibility(slider) {
  const values = Array.from(slider.rows.filter(row => accepted(row, "contrast")), row => rows.contrast[row]).sort((a, b) => a - b);
  if (!values.length) return "No image of this shift is accepted.";
  const at = share => values[Math.round(share * (values.length - 1))].toFixed(0);
  const under = [5, 10, 20].map(limit => {
    const low = values.filter(value => value < limit).length;
    return `${low} (${(100 * low / values.length).toFixed(0)} %) under ${limit}`;
  });
  return `Contrast of the ${values.length} images that the other thresholds accept: minimum ${at(0)}, 5 % quantile ${at(.05)}, 25 % quantile ${at(.25)}, median ${at(.5)}, maximum ${at(1)}; ${under.join(", ")}.`;
}

function drawn(slider) {
  const last = slider.thresholds.length - 1, span = last || 1, width = Math.max(1, Math.ceil(last / BARS));
  const counts = [], low = slider.thresholds[0], range = slider.thresholds[last] - low || 1;
  for (let at = 0; at < last; at += width) {
    const end = Math.min(last, at + width);
    const all = slider.atOrAbove[at] - slider.atOrAbove[end], good = slider.accepted[at] - slider.accepted[end];
    counts.push({ at, end, all, good });
  }
  const most = Math.max(1, ...counts.map(bar => bar.all)), cut = 1000 * (slider.value - low) / range, parts = [];
  const rect = (kind, from, to, y, height) => {
    if (to > from && height > 0) parts.push(`<rect class="bar-${kind}" x="${from}" y="${y}" width="${to - from}" height="${height}"/>`);
  };
  for (const bar of counts) {
    const from = 1000 * bar.at / span, to = 1000 * bar.end / span - 1.5;
    const good = 98 * bar.good / most, bad = 98 * (bar.all - bar.good) / most;
    rect("drop", from, Math.min(to, cut), 100 - good, good);
    rect("keep", Math.max(from, cut), to, 100 - good, good);
    rect("other", from, to, 100 - good - bad, bad);
  }
  parts.push(`<line class="cut" x1="${cut}" x2="${cut}" y1="0" y2="100"/>`);
  slider.section.querySelector("svg").innerHTML = parts.join("");
}

// The pictures next to the line and some of the whole range; a line's own threshold is told before another's.
function placed(slider) {
  if (!slider.section.querySelector(".around")) return;
  const line = Math.fround(slider.value), order = slider.pictures;
  const first = order.findIndex(at => Math.fround(scoreOf(slider, at)) >= line), from = first < 0 ? order.length : first;
  const some = order.length <= STRIP ? order : Array.from({ length: STRIP }, (_, n) => order[Math.round(n * (order.length - 1) / (STRIP - 1))]);
  const show = (where, list) => {
    const none = document.createElement("p");
    none.className = "quiet";
    none.textContent = "No kept image is here.";
    slider.section.querySelector(where).replaceChildren(...(list.length ? list.map(at => marked(slider, at, figures[at].cloneNode(true))) : [none]));
  };
  show(".below", order.slice(Math.max(0, from - NEAR), from));
  show(".above", order.slice(from, from + NEAR));
  show(".strip", some);
}
function marked(slider, at, figure) {
  const picture = data.pictures[at], low = Math.fround(scoreOf(slider, at)) < Math.fround(slider.value);
  const good = data.exact ? accepted(picture.row, slider.kind) : picture.passes;
  figure.classList.toggle("drop", low);
  figure.classList.toggle("other", !low && !good);
  let why = low ? "below" : "accepted";
  if (!low && !good) {
    const others = data.exact ? KINDS.filter(kind => kind !== slider.kind && !reaches[kind](picture.row)) : ["object"];
    why = others.length ? `low ${others.join(", ")}` : "too dark or bright";
  }
  figure.querySelector(".state").textContent = why;
  return figure;
}

function glance() {
  let all = 0, candidates = 0;
  data.units.forEach((unit, at) => {
    let now = 0;
    if (data.exact) for (let row = unit.from; row < unit.to; row++) now += accepted(row) ? 1 : 0;
    else now = sliders.find(each => each.units[0] === at)?.now.accepted ?? 0;
    all += now;
    candidates += unit.candidates;
    if (!unit.cells) return;
    const own = sliders.find(each => each.kind === "shift" && each.units[0] === at);
    const share = unit.candidates ? (100 * now / unit.candidates).toFixed(1) + " %" : "–";
    [own ? short(own, own.value) : "–", `${now} of ${unit.candidates}`, share].forEach((text, n) => { unit.cells[n].textContent = text; });
  });
  byId("total").textContent = `accepted: ${all} of ${candidates}`;
}

const number = value => (String(value).includes("e") ? value.toFixed(12) : String(value));
function yaml() {
  const everywhere = [], own = data.units.map(() => []);
  for (const slider of sliders) {
    if (slider.kind !== "object" || slider.value === slider.first) continue;
    const line = `${slider.key}: ${number(slider.value)}`;
    if (slider.screen) everywhere.push(line); else slider.units.forEach(at => own[at].push(line));
  }
  const classes = (lines, indent) => [`${indent}object_threshold:`, `${indent}  classes:`, ...lines.map(line => `${indent}    ${line}`)];
  const base = [], shifts = [];
  data.units.forEach((unit, at) => {
    if (!unit.top) return;  // a shift's levels have one entry
    const indent = unit.base ? "    " : "      ", lines = own[at].length ? classes(own[at], indent) : [];
    const slider = sliders.find(each => each.kind === "shift" && each.units[0] === at);
    if (slider?.starts.length) lines.unshift(`${indent}threshold: ${number(slider.value)}`);
    const contrast = sliders.find(each => each.kind === "contrast" && each.units[0] === at);
    if (contrast && contrast.value !== contrast.first) lines.push(`${indent}keep: ${JSON.stringify(kept(contrast))}`);
    if (lines.length) (unit.base ? base : shifts).push(`${indent.slice(2)}${unit.base ? "base" : unit.key}:`, ...lines);
  });
  const text = [];
  if (everywhere.length) text.push("screen:", ...classes(everywhere, "  "));
  if (base.length || shifts.length) text.push("prompts:", ...base, ...(shifts.length ? ["  shifts:", ...shifts] : []));
  return data.head + (text.length ? text.join("\n") : "{}") + "\n";
}
// The shift's keep rules with another least contrast; measured first, where no rule of visibility was there.
function kept(slider) {
  const value = Number(number(slider.value)), there = slider.keep.some(rule => rule === "visible" || rule.visible);
  const rules = slider.keep.map(rule => (rule === "visible" || rule.visible ? { visible: { ...rule.visible, contrast: value } } : rule));
  return there ? rules : [{ visible: { contrast: value } }, ...rules];
}

// What a slider says of candidates enters the counts of every slider that has some of them.
function choose(slider, value) {
  slider.value = value;
  if (slider.kind === "object") slider.group.least[slider.label] = value;
  else if (slider.kind === "contrast") data.units[slider.units[0]].dark = Math.fround(value);
  else data.units[slider.units[0]].line = Math.fround(value);
  const touched = new Set([slider]);
  if (data.exact) slider.units.forEach(at => data.units[at].sliders.forEach(each => touched.add(each)));
  for (const each of touched) {
    if (slider.kind === "object" && each.kind === "object" && each !== slider) continue;
    counted(each);
    shown(each);
    each.stale = true;
  }
  refresh();
  finished();
}
function finished() {
  glance();
  byId("yaml").value = yaml();
  const moved = sliders.filter(slider => slider.value !== slider.first).map(slider => `${slider.name}=${slider.value}`);
  try { history.replaceState(null, "", moved.length ? "#" + moved.join("&") : location.pathname + location.search); } catch (error) { /* an address that may not be changed changes nothing else */ }
}
// Plots and pictures are drawn where they are seen: there may be a hundred sliders.
function refresh() {
  for (const slider of sliders) {
    if (!slider.stale || !slider.seen) continue;
    slider.stale = false;
    drawn(slider);
    placed(slider);
  }
}

const sections = { shift: [], object: [], contrast: [] };
document.querySelectorAll("section[data-slider]").forEach(section => sections[section.dataset.slider].push(section));
const figures = [];
document.querySelectorAll(".store figure").forEach(figure => { figures[Number(figure.dataset.picture)] = figure; });
document.querySelectorAll(".store").forEach(store => store.classList.add("hidden"));
const sliders = data.shifts.map((shift, at) => made("shift", sections.shift[at], {
  ...shift, units: [shift.unit], name: data.units[shift.unit].name, candidates: data.units[shift.unit].candidates,
}));
data.groups.forEach((group, place) => group.objects.forEach(one => {
  const slider = made("object", sections.object.shift(), { ...one, units: group.units, group, screen: group.screen, name: `object.${place}.${one.id}` });
  slider.candidates = slider.rows.length;
  sliders.push(slider);
}));
data.contrasts.forEach((one, at) => {
  const unit = data.units[one.unit];
  sliders.push(made("contrast", sections.contrast[at], { ...one, units: [one.unit], name: `contrast.${unit.name}`, candidates: unit.candidates }));
});

for (const slider of sliders) {
  const { section, input } = slider, last = slider.thresholds.length - 1;
  input.max = last;
  input.addEventListener("input", () => choose(slider, slider.thresholds[Number(input.value)]));
  section.querySelector(".low").textContent = short(slider, slider.thresholds[0]);
  section.querySelector(".high").textContent = short(slider, slider.thresholds[last]);
  for (const start of slider.starts) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${start.text}: ${short(slider, start.value)}`;
    button.addEventListener("click", () => choose(slider, start.value));
    section.querySelector(".starts").append(button);
  }
}
for (const unit of data.units) {
  const row = document.createElement("tr"), head = document.createElement("th"), section = byId(`shift-${unit.name}`);
  head.scope = "row";
  head.append(unit.name.replaceAll("_", " "));
  if (section) {
    const link = document.createElement("a");
    link.href = `#shift-${unit.name}`;
    link.append(...head.childNodes);
    head.append(link);
  }
  unit.cells = Array.from({ length: 3 }, () => document.createElement("td"));
  row.append(head, ...unit.cells);
  document.querySelector("#glance tbody").append(row);
}
// A link to a section moves there, and does not become the address, which holds the sliders.
document.querySelectorAll('nav a[href^="#"]').forEach(link => link.addEventListener("click", event => {
  event.preventDefault();
  const section = document.querySelector(link.getAttribute("href"));
  unfolded(section);
  section.scrollIntoView();
  section.querySelector("input").focus({ preventScroll: true });
}));

function unfolded(section) {
  const more = section.closest("details");
  if (more) more.open = true;
}

function fromAddress(hash) {
  const wanted = new URLSearchParams(hash.slice(1));
  for (const slider of sliders) {
    const value = Number(wanted.get(slider.name));
    if (!wanted.has(slider.name) || !Number.isFinite(value)) continue;
    const start = slider.starts.find(each => Math.abs(each.value - value) < 1e-9);
    const chosen = start ? start.value : slider.thresholds[nearestStep(slider, value)];
    if (chosen !== slider.value) { unfolded(slider.section); choose(slider, chosen); }
  }
}
for (const slider of sliders) { counted(slider); shown(slider); }
const ofSection = new Map(sliders.map(slider => [slider.section, slider]));
const watch = new IntersectionObserver(entries => {
  for (const entry of entries) ofSection.get(entry.target).seen = entry.isIntersecting;
  refresh();
}, { rootMargin: "600px" });
sliders.forEach(slider => watch.observe(slider.section));
const atFirst = location.hash;
finished();
fromAddress(atFirst);
window.addEventListener("hashchange", () => fromAddress(location.hash));

function say(text) {
  const said = byId("said");
  said.textContent = "";
  setTimeout(() => { said.textContent = text; }, 50); // the same words again are announced again
}
byId("copy").addEventListener("click", async () => {
  const box = byId("yaml");
  let copied = false;
  try { await navigator.clipboard.writeText(box.value); copied = true; } catch (error) {
    // Browsers that give a local file no clipboard still copy a selection.
    box.closest("details").open = true; box.focus(); box.select();
    copied = document.execCommand("copy");
    if (copied) byId("copy").focus();
  }
  say(copied ? "Copied." : "Select the text and copy it.");
});
if (window.saveThere) byId("download").textContent = "Save cut.yaml";
byId("download").addEventListener("click", async () => {
  // Where `counterfoil open` serves this page, it is saved beside the dataset; else, or should that end, downloaded.
  const told = await window.saveThere?.(byId("yaml").value);
  if (told) return say(told);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([byId("yaml").value], { type: "application/yaml" }));
  link.download = "cut.yaml";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  say("Downloaded cut.yaml.");
});
