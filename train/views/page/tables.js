// Tables of the numbers, made when they are opened.
function table(caption, header, rows) {
  return make('div', {class: 'scroll', tabindex: '0', role: 'region',
    'aria-label': caption},
  make('table', {}, make('caption', {}, caption),
    make('thead', {}, make('tr', {},
      ...header.map((name) => make('th', {scope: 'col'}, name)))),
    make('tbody', {}, ...rows.map(([name, ...values]) =>
      make('tr', {}, make('th', {scope: 'row'}, name),
        ...values.map((value) => make('td', {}, value)))))));
}

function weightsTable() {
  const text = page.texts[state.active];
  return table(
    `Layer ${state.layer + 1}, head ${state.head + 1}, ${label(text)}:`
    + ' a row for each token, its weight on each token',
    ['', ...text.pieces],
    text.pieces.map((piece, i) => [piece, ...text.pieces.map((_, j) =>
      seen(i, j) ? weightOf(text, i, j).toFixed(decimals) : '–')]));
}

async function pairTable() {
  const pair = chosenPair();
  if (!pair) return make('p', {class: 'note'}, 'No token is chosen.');
  const {text, from, to} = pair;
  const packed = await unpackNeurons(state.active);
  const query = vectorOf(packed, 'query', from, text.length);
  const key = vectorOf(packed, 'key', to, text.length);
  const products = productsOf(query, key);
  return table(
    `Layer ${state.layer + 1}, head ${state.head + 1}: query of`
    + ` ${text.pieces[from]}, key of ${text.pieces[to]}`,
    ['dimension', 'query', 'key', `query × key / √${dims}`],
    Array.from(query, (value, d) => [d + 1, value.toFixed(4),
      key[d].toFixed(4), products[d].toFixed(4)]));
}

function sharesTable() {
  const text = page.texts[state.active];
  const names = Object.keys(text.shares);
  return table(
    `${label(text)}: mean share of attention`,
    ['layer, head', ...names.map((name) => titles.get(name))],
    cells.map((_, head) => [
      `${Math.floor(head / heads) + 1}, ${head % heads + 1}`,
      ...names.map((name) => text.shares[name][head].toFixed(4))]));
}

const tables = {
  'weights-table': weightsTable,
  'pair-table': pairTable,
  'shares-table': sharesTable,
};

async function drawTable(id) {
  const box = byId(id);
  if (!box.open) return;
  const made = await tables[id]();
  box.replaceChildren(box.firstElementChild, made);
}

async function drawDetails() {
  await drawNeurons();
  for (const id of Object.keys(tables)) await drawTable(id);
}
