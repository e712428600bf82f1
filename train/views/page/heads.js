// All layers by heads: pictures of the weights, or shares with their numbers.
const cells = [];

function buildGrid() {
  const grid = byId('grid');
  const cell = Math.max(26, Math.min(44, Math.floor(440 / heads) - 3));
  grid.style.setProperty('--cell', `${cell}px`);
  grid.append(make('thead', {}, make('tr', {},
    make('td'),
    ...Array.from({length: heads}, (_, n) =>
      make('th', {scope: 'col', 'aria-label': `head ${n + 1}`}, n + 1)))));
  const body = make('tbody');
  for (let l = 0; l < layers; l++) {
    const row = make('tr', {},
      make('th', {scope: 'row', 'aria-label': `layer ${l + 1}`}, l + 1));
    for (let n = 0; n < heads; n++) {
      const button = make('button', {type: 'button', class: 'head'});
      button.addEventListener('focus', () => chooseHead(l, n));
      button.addEventListener('click', () => button.focus());
      button.addEventListener('keydown', (event) => {
        const [down, right] = {
          ArrowUp: [-1, 0], ArrowDown: [1, 0],
          ArrowLeft: [0, -1], ArrowRight: [0, 1],
          Home: [0, -n], End: [0, heads - 1 - n],
        }[event.key] || [0, 0];
        if (!down && !right) return;
        event.preventDefault();
        const [layer, head] = [l + down, n + right];
        if (layer >= 0 && layer < layers && head >= 0 && head < heads) {
          cells[layer * heads + head].focus();
        }
      });
      cells.push(button);
      row.append(make('td', {role: 'gridcell'}, button));
    }
    body.append(row);
  }
  grid.append(body);
  const choice = byId('measure');
  choice.append(make('option', {value: 'weights'}, 'weights'));
  for (const {name, title} of page.measures) {
    choice.append(make('option', {value: name}, title));
  }
  choice.addEventListener('change', () => {
    state.measure = choice.value;
    drawGrid();
  });
}

function drawGrid() {
  const text = page.texts[state.main];
  const shares = text.shares[state.measure];
  const measure = page.measures.find(({name}) => name === state.measure);
  const meaning = state.measure === 'weights'
    ? 'Each picture is a head: a row for each token, a column for each token'
      + ' that it attends to.'
    : shares
      ? `Percent of attention on ${measure.keys}, mean over tokens.`
      : `This text has no token to attend to of this kind (${measure.title}).`;
  byId('meaning').textContent = page.texts.length > 1
    ? `${meaning} Shown: text ${state.main + 1}.` : meaning;
  cells.forEach((button, head) => {
    const values = Object.entries(text.shares)
      .map(([name, all]) => `${titles.get(name)} ${all[head].toFixed(3)}`);
    button.setAttribute('aria-label',
      `Layer ${Math.floor(head / heads) + 1}, head ${head % heads + 1}: `
      + values.join(', '));
    button.style.background = button.style.color = '';
    if (state.measure === 'weights') {
      const canvas = button.firstElementChild || make('canvas');
      drawThumbnail(canvas, text, head);
      button.replaceChildren(canvas);
    } else if (shares) {
      const share = shares[head];
      const [r, g, b] = colours.first;
      button.style.background = `rgb(${r} ${g} ${b} / ${share})`;
      if (share > 0.6) button.style.color = 'var(--paper)';
      button.replaceChildren(String(Math.round(100 * share)));
    } else {
      button.replaceChildren();
    }
  });
  markHead();
}

function drawThumbnail(canvas, text, head) {
  const length = text.length;
  const size = Math.min(length, THUMBNAIL);
  const largest = new Float64Array(size * size);
  for (let i = 0; i < length; i++) {
    const y = Math.floor(i * size / length);
    for (let j = 0; j < length; j++) {
      const at = y * size + Math.floor(j * size / length);
      largest[at] = Math.max(largest[at], weightOf(text, i, j, head));
    }
  }
  canvas.width = canvas.height = size;
  const context = canvas.getContext('2d');
  const image = context.createImageData(size, size);
  for (let at = 0; at < size * size; at++) {
    image.data.set(colours.first, 4 * at);
    image.data[4 * at + 3] = 255 * Math.sqrt(largest[at]); // faint ones show
  }
  context.putImageData(image, 0, 0);
}

function markHead() {
  const current = cells[headNumber()];
  for (const each of cells) each.removeAttribute('aria-current');
  current.setAttribute('aria-current', 'true');
  rove(cells, current);
  byId('chosen').textContent =
    `Layer ${state.layer + 1}, head ${state.head + 1}`;
}

function chooseHead(layer, head) {
  if (layer === state.layer && head === state.head) return;
  [state.layer, state.head] = [layer, head];
  state.key.fill(null);
  markHead();
  panels.forEach(labelPanel);
  panels.forEach(drawPanel);
  drawDetails();
}
