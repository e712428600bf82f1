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
  point([a, b], `cosine ${value}\n${told(a)}\n${told(b)}`);
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
