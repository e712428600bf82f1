// Neurons: the query of a token times the key of each other.
// The pair of tokens whose neurons are shown.
function chosenPair() {
  const text = page.texts[state.active];
  const held = state.held[state.active];
  if (!held) return null;
  const others = text.pieces.map((_, i) => i).filter((i) =>
    held.side === 'from' ? seen(held.index, i) : seen(i, held.index));
  const weight = (i) => held.side === 'from'
    ? weightOf(text, held.index, i) : weightOf(text, i, held.index);
  const best = others.reduce((a, b) => weight(b) > weight(a) ? b : a);
  const other = state.key[state.active] ?? best;
  const [from, to] = held.side === 'from'
    ? [held.index, other] : [other, held.index];
  return {text, held, others, other, from, to};
}

function drawStrip(canvas, values, largest) {
  canvas.width = values.length;
  canvas.height = 1;
  const context = canvas.getContext('2d');
  const image = context.createImageData(values.length, 1);
  values.forEach((value, d) => {
    image.data.set(value < 0 ? colours.second : colours.first, 4 * d);
    image.data[4 * d + 3] = 255 * Math.abs(value) / (largest || 1);
  });
  context.putImageData(image, 0, 0);
}

const largestOf = (values) =>
  values.reduce((most, each) => Math.max(most, Math.abs(each)), 0);

const productsOf = (query, key) =>
  query.map((value, d) => value * key[d] / Math.sqrt(dims));

let drawing = 0; // of the last call; an earlier one that waited gives up

async function drawNeurons() {
  const mine = ++drawing;
  const pair = chosenPair();
  const products = byId('products');
  if (!pair) {
    products.replaceChildren();
    byId('pair').textContent = 'Choose a token above: its query times each'
      + ' key, dimension by dimension.';
    return;
  }
  const packed = await unpackNeurons(state.active);
  if (mine !== drawing) return;
  const {text, held, others, other, from, to} = pair;
  const vector = (name, token) => vectorOf(packed, name, token, text.length);
  byId('pair').textContent =
    `${text.pieces[from]} → ${text.pieces[to]}: the products of ${dims}`
    + ` dimensions, over √${dims}, sum to the score; the softmax of the`
    + ' scores is the weight. Blue is positive, orange negative.';
  const lead = (title, values) => {
    const canvas = make('canvas', {'aria-hidden': 'true'});
    drawStrip(canvas, values, largestOf(values));
    return make('div', {class: 'row lead'},
      make('span', {class: 'name'}, title), canvas);
  };
  const rows = others.map((i) => {
    const [f, t] = held.side === 'from' ? [held.index, i] : [i, held.index];
    const values = productsOf(vector('query', f), vector('key', t));
    return {i, values, score: values.reduce((a, b) => a + b, 0),
      weight: weightOf(text, f, t)};
  });
  const largest = Math.max(...rows.map(({values}) => largestOf(values)));
  const items = rows.map(({i, values, score, weight}) => {
    const canvas = make('canvas', {'aria-hidden': 'true'});
    drawStrip(canvas, values, largest);
    const item = make('li', {
      class: 'row', role: 'option', 'aria-selected': String(i === other),
      'aria-label': `${text.pieces[i]}, token ${i + 1}, score`
        + ` ${score.toFixed(3)}, weight ${weight.toFixed(decimals)}`,
    },
    make('span', {class: 'name'}, text.pieces[i]), canvas,
    make('span', {class: 'value'}, score.toFixed(2)),
    make('span', {class: 'value'}, weight.toFixed(2)));
    return item;
  });
  items.forEach((item, at) => {
    const choose = (index) => {
      state.key[state.active] = others[index];
      drawDetails().then(() => {
        const chosen = byId('products').querySelector('[aria-selected=true]');
        if (chosen) chosen.focus();
      });
    };
    item.addEventListener('click', () => choose(at));
    item.addEventListener('keydown', (event) => {
      const next = {ArrowUp: at - 1, ArrowDown: at + 1, Home: 0,
        End: items.length - 1, Enter: at, ' ': at}[event.key];
      if (next === undefined) return;
      event.preventDefault();
      if (next >= 0 && next < items.length) choose(next);
    });
  });
  rove(items, items[others.indexOf(other)]);
  const fixed = held.side === 'from' ? `query ${text.pieces[from]}`
    : `key ${text.pieces[to]}`;
  const moving = held.side === 'from' ? `key ${text.pieces[to]}`
    : `query ${text.pieces[from]}`;
  const [q, k] = [vector('query', from), vector('key', to)];
  products.replaceChildren(
    lead(fixed, held.side === 'from' ? q : k),
    lead(moving, held.side === 'from' ? k : q),
    make('div', {class: 'row lead', 'aria-hidden': 'true'},
      make('span', {class: 'name'}, 'query × key'), make('span'),
      make('span', {class: 'value'}, 'score'),
      make('span', {class: 'value'}, 'weight')),
    make('ul', {role: 'listbox', 'aria-label': `Products with ${fixed}`},
      ...items));
  const {offsetTop, offsetHeight} = items[others.indexOf(other)];
  products.scrollTop = offsetTop + offsetHeight - products.clientHeight / 2;
}
