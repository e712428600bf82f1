"""A page about one word in many sentences, in one file and without network.

The page holds the figures of `word_map.describe` as JSON. Its script draws the
picture as SVG, and the cosines as a table; layers change by buttons or by the
arrow keys, and every number can be reached by keyboard.
"""

import html
import json
from collections.abc import Mapping
from typing import Any

DIGITS = 4  # of the numbers in the page

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21;
  --faint: #5c626b; --line: #c9cdd3; --deep: #0b2a5e; --mark: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181d; --ink: #eceef1; --faint: #a3a9b3;
    --line: #434852; --deep: #a9c8ff; --mark: #ffb4a9; } }
html { scroll-padding-bottom: 8rem; }
body { margin: 1.5rem auto 8rem; padding: 0 1rem; max-width: 72rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; } .faint { color: var(--faint); }
#layers { display: flex; flex-wrap: wrap; gap: .35rem; margin: 1rem 0; }
button { font: inherit; padding: .2rem .7rem; border-radius: .4rem;
  border: 1px solid var(--line); background: var(--paper); color: var(--ink); }
button[aria-pressed=true] { background: var(--deep); color: var(--paper);
  border-color: var(--deep); }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 1px; }
main { display: grid; gap: 1.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
.wide { grid-column: 1 / -1; } .scroll { overflow: auto; padding: 4px; }
main > .scroll:not(.wide) { max-height: 34rem; }
#cosines th { position: sticky; background: var(--paper); }
#cosines thead th { top: -4px; } #cosines tbody th { left: -4px; }
svg { width: 100%; max-width: 34rem; border: 1px solid var(--line); }
svg line { stroke: var(--line); }
svg text { fill: var(--faint); font-size: 13px; }
.point circle { fill: var(--deep); stroke: var(--paper); stroke-width: 1.5; }
.point text { fill: var(--paper); font-size: 11px; text-anchor: middle; }
.point.on circle { fill: var(--mark); } .point { outline: none; }
.point:focus-visible circle { stroke: var(--ink); stroke-width: 4; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .2rem .45rem; text-align: right; }
th { color: var(--faint); font-weight: 600; }
#cosines td { --part: calc(var(--of) * 1%); font-size: .85rem;
  background: color-mix(in srgb, var(--deep) var(--part), var(--paper)); }
#cosines td.strong { color: var(--paper); }
#rows td { border-top: 1px solid var(--line); }
#rows .text { text-align: left; } thead th { white-space: nowrap; }
tr.on td, th.on { color: var(--mark); }
mark { background: none; color: inherit; font-weight: 700;
  text-decoration: underline; }
#said { position: fixed; inset: auto 0 0; margin: 0; min-height: 3.2rem;
  padding: .6rem 1rem; background: var(--paper); white-space: pre-line;
  border-top: 2px solid var(--line); }
"""

_SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const SIZE = 480, EDGE = 36, STRONG = 57;
const count = data.rows.length;
const get = (id) => document.getElementById(id);
let layer = data.layers.length - 1;

function make(parent, name, text, fields = {}) {
  const space = name in { g: 1, circle: 1, text: 1, line: 1 } ?
    'http://www.w3.org/2000/svg' : 'http://www.w3.org/1999/xhtml';
  const made = document.createElementNS(space, name);
  if (text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(fields))
    made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function told(row) {
  const { sentence, begin, end } = data.rows[row];
  return `${row + 1}: ${sentence.slice(0, begin)}[${
    sentence.slice(begin, end)}]${sentence.slice(end)}`;
}

function point(rows, text) {
  for (const each of document.querySelectorAll('[data-row]'))
    each.classList.toggle('on', rows.includes(Number(each.dataset.row)));
  get('said').textContent = text;
}

function pointAtCell(cell) {
  const [a, b] = [Number(cell.dataset.a), Number(cell.dataset.b)];
  const value = data.layers[layer].cosines[a][b];
  point([a, b], `cosine ${value}\\n${told(a)}\\n${told(b)}`);
}

function watch(element, action) {
  element.addEventListener('mouseenter', action);
  element.addEventListener('focus', action);
}

function build() {
  data.layers.forEach((each, number) => {
    const button = make(get('layers'), 'button', each.layer, {
      type: 'button' });
    button.addEventListener('click', () => show(number));
  });
  const svg = get('picture'), middle = SIZE / 2;
  make(svg, 'line', null, { x1: 0, x2: SIZE, y1: middle, y2: middle });
  make(svg, 'line', null, { y1: 0, y2: SIZE, x1: middle, x2: middle });
  make(svg, 'text', '', { id: 'across', x: SIZE - 8, y: SIZE - 9,
    'text-anchor': 'end' });
  make(svg, 'text', '', { id: 'up', x: 8, y: 18 });
  const head = make(make(get('cosines'), 'thead', null), 'tr', null);
  const body = make(get('cosines'), 'tbody', null);
  make(head, 'td', '', { style: 'background: none' });
  for (let a = 0; a < count; a++) {
    const dot = make(svg, 'g', null, { class: 'point', tabindex: 0,
      role: 'img', 'data-row': a, 'aria-label': told(a) });
    make(dot, 'circle', null, { r: 11 });
    make(dot, 'text', a + 1, { dy: 4 });
    watch(dot, () => point([a], told(a)));
    make(head, 'th', a + 1, { scope: 'col', 'data-row': a });
    const line = make(body, 'tr', null);
    make(line, 'th', a + 1, { scope: 'row', 'data-row': a });
    for (let b = 0; b < count; b++)
      make(line, 'td', '', { 'data-a': a, 'data-b': b,
        tabindex: a + b ? -1 : 0 });
    const { sentence, begin, end } = data.rows[a];
    const row = make(get('rows').tBodies[0], 'tr', null, { 'data-row': a });
    make(row, 'th', a + 1, { scope: 'row' });
    const text = make(row, 'td', sentence.slice(0, begin), { class: 'text' });
    make(text, 'mark', sentence.slice(begin, end));
    text.append(sentence.slice(end));
    make(row, 'td', '');
    make(row, 'td', '');
    row.addEventListener('mouseenter', () => point([a], told(a)));
  }
  for (const cell of body.querySelectorAll('td'))
    watch(cell, () => pointAtCell(cell));
}

function show(number) {
  layer = number;
  const { layer: name, cosines, points, variance_shares: shares,
    mean_cosine: mean } = data.layers[layer];
  [...get('layers').children].forEach((button, each) =>
    button.setAttribute('aria-pressed', each === layer));
  const percent = (share) => `${(100 * share).toFixed(0)} % of the variance`;
  get('across').textContent = `across: component 1, ${percent(shares[0])}`;
  get('up').textContent = `up: component 2, ${percent(shares[1])}`;
  const others = cosines.flatMap((row, a) => row.filter((_, b) => a !== b));
  const low = Math.min(...others, 1), high = Math.max(...others, low + 1e-4);
  get('caption').textContent = `Cosine similarity of layer ${name}` +
    (mean === null ? '' : `: mean ${mean}, from ${low} to ${high}`);
  const half = Math.max(...points.flat().map(Math.abs)) || 1;
  const place = (x) => SIZE / 2 + x / half * (SIZE / 2 - EDGE);
  document.querySelectorAll('.point').forEach((dot, row) => {
    const [x, y] = points[row];
    dot.setAttribute('transform', `translate(${place(x)} ${place(-y)})`);
    const cells = get('rows').tBodies[0].rows[row].cells;
    cells[2].textContent = x;
    cells[3].textContent = y;
  });
  for (const cell of get('cosines').tBodies[0].querySelectorAll('td')) {
    const { a, b } = cell.dataset, value = cosines[a][b];
    const part = a === b ? 100 : 100 * (value - low) / (high - low);
    cell.textContent = value.toFixed(2);
    cell.style.setProperty('--of', part.toFixed(0));
    cell.classList.toggle('strong', part > STRONG);
  }
}

function move(cell, down, right) {
  const bound = (n) => Math.min(Math.max(n, 0), count - 1);
  const a = bound(Number(cell.dataset.a) + down);
  const b = bound(Number(cell.dataset.b) + right);
  const next = get('cosines').tBodies[0].rows[a].cells[b + 1];
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0],
  ArrowDown: [1, 0] };
document.addEventListener('keydown', (event) => {
  const step = STEPS[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const cell = event.target.closest('#cosines tbody td');
  if (cell) {
    move(cell, ...step);
  } else if (step[1]) {
    const most = data.layers.length - 1;
    show(Math.min(Math.max(layer + step[1], 0), most));
  } else {
    return;
  }
  event.preventDefault();
});
build();
show(layer);
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>@STYLE@</style>
</head>
<body>
<h1>@TITLE@</h1>
<p class="faint">Vectors of the word by @WEIGHTS@</p>
<noscript>The page is drawn by its own script, which is turned off
here.</noscript>
<div id="layers" role="group" aria-label="Layer"></div>
<main>
<section>
<svg id="picture" viewBox="0 0 480 480" role="group"
 aria-label="The vectors' first two principal components"></svg>
</section>
<section class="scroll">
<table id="cosines"><caption id="caption" aria-live="polite"></caption></table>
</section>
<section class="wide scroll">
<table id="rows">
<caption>Sentences, and their places in the picture</caption>
<thead><tr><th scope="col">No.</th><th scope="col" class="text">Sentence</th>
<th scope="col">Component 1</th><th scope="col">Component 2</th></tr></thead>
<tbody></tbody>
</table>
</section>
</main>
<p id="said" role="status" aria-live="polite">\
Point at a number or a dot, or reach it with Tab. \
The arrow keys move between numbers, and elsewhere between layers.</p>
<script type="application/json" id="data">@DATA@</script>
<script>@SCRIPT@</script>
</body>
</html>
"""


def as_html(figures: Mapping[str, Any]) -> str:
  """Returns the page of `word_map.describe`'s figures."""
  rows = []
  for row in figures['rows']:
    before = row['words'][: row['place']]
    begin = len(' '.join(before)) + bool(before)
    rows.append(
      {
        'sentence': ' '.join(row['words']),
        'begin': begin,
        'end': begin + len(row['words'][row['place']]),
      }
    )
  # JavaScript counts UTF-16 units: a character beyond U+FFFF has two.
  for row in rows:
    for key in ('begin', 'end'):
      before = row['sentence'][: row[key]]
      row[key] = len(before.encode('utf-16-le')) // 2
  data = {'rows': rows, 'layers': _rounded(figures['layers'])}
  # No text may end the element of the script.
  text = json.dumps(data, ensure_ascii=False).replace('<', '\\u003c')
  title = f'“{figures["word"]}” in {len(rows):,} places'
  page = _PAGE
  for name, value in {
    'STYLE': _STYLE,
    'SCRIPT': _SCRIPT,
    'TITLE': html.escape(title),
    'WEIGHTS': html.escape(figures['weights']),
    'DATA': text,  # last: it may hold the mark of another part
  }.items():
    page = page.replace(f'@{name}@', value)
  return page


def _rounded(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _rounded(each) for key, each in value.items()}
  if isinstance(value, list | tuple):
    return [_rounded(each) for each in value]
  if isinstance(value, float):
    return round(value, DIGITS) + 0.0  # no -0
  return value
