// Lines from token to token, of the chosen head.
let panels = [];

function buildPanels() {
  const numbers = [state.main, state.beside].filter((each) => each !== null);
  panels = numbers.map((number) => {
    const text = page.texts[number];
    const panel = {number, text, from: [], to: []};
    const lists = {};
    for (const side of ['from', 'to']) {
      const name = side === 'from' ? 'tokens that attend' : 'attended tokens';
      lists[side] = make('ul', {
        class: `tokens ${side}`, role: 'listbox',
        'aria-label': `${label(text)}: ${name}`,
      });
      text.pieces.forEach((piece, i) => {
        const shown = make('span', {class: 'piece'}, piece);
        const value = make('span', {class: 'number'});
        const kind = text.symbols[i] ? 'symbol' : segmentOf(text, i);
        const item = make('li', {class: `token ${kind}`, role: 'option'},
          ...(side === 'from' ? [value, shown] : [shown, value]));
        listen(item, panel, side, i);
        panel[side].push(item);
        lists[side].append(item);
      });
    }
    panel.caption = make('figcaption');
    panel.canvas = make('canvas', {'aria-hidden': 'true'});
    panel.figure = make('figure', {class: 'panel', 'aria-label': label(text)},
      panel.caption,
      make('div', {class: 'columns'},
        lists.from, panel.canvas, lists.to));
    return panel;
  });
  byId('panels').replaceChildren(...panels.map(({figure}) => figure));
  panels.forEach(labelPanel);
}

function listen(item, panel, side, index) {
  const {number, text} = panel;
  item.addEventListener('mouseenter', () => {
    state.hover = {text: number, side, index};
    drawPanel(panel);
  });
  item.addEventListener('mouseleave', () => {
    state.hover = null;
    drawPanel(panel);
  });
  const hold = () => {
    state.held[number] = {side, index};
    state.active = number;
    state.key[number] = null;
    drawPanel(panel);
    drawDetails();
  };
  item.addEventListener('focus', hold);
  item.addEventListener('click', () => item.focus());
  item.addEventListener('keydown', (event) => {
    const other = side === 'from' ? 'to' : 'from';
    const next = {
      ArrowUp: panel[side][index - 1],
      ArrowDown: panel[side][index + 1],
      ArrowLeft: side === 'to' ? panel[other][index] : null,
      ArrowRight: side === 'from' ? panel[other][index] : null,
      Home: panel[side][0],
      End: panel[side][text.length - 1],
    }[event.key];
    if (next) {
      event.preventDefault();
      next.focus();
    } else if (event.key === 'Escape') {
      state.held[number] = null;
      drawPanel(panel);
      drawDetails();
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      hold();
    }
  });
}

// What a screen reader says of each token, of the chosen head.
function labelPanel({text, from, to}) {
  from.forEach((item, i) =>
    item.setAttribute('aria-label', describe(text, 'from', i)));
  to.forEach((item, i) =>
    item.setAttribute('aria-label', describe(text, 'to', i)));
}

const shownToken = (number) => state.hover && state.hover.text === number
  ? state.hover : state.held[number];

function drawPanel(panel) {
  const {number, text} = panel;
  const shown = shownToken(number);
  const held = state.held[number];
  panel.caption.replaceChildren(...Object.entries(text.shares)
    .map(([name, all]) => make('span', {},
      `${titles.get(name)} ${percent(all[headNumber()])}`)));
  for (const side of ['from', 'to']) {
    const opposite = side === 'from' ? 'to' : 'from';
    panel[side].forEach((item, i) => {
      const isShown = shown && shown.side === side && shown.index === i;
      item.setAttribute('aria-selected', Boolean(isShown));
      const value = item.querySelector('.number');
      value.textContent = '';
      item.style.background = '';
      if (shown && shown.side === opposite) {
        const [from, to] = side === 'to'
          ? [shown.index, i] : [i, shown.index];
        if (!seen(from, to)) return;
        const weight = weightOf(text, from, to);
        value.textContent = weight.toFixed(2);
        const [r, g, b] = tokenColour(text, i);
        item.style.background = `rgb(${r} ${g} ${b} / ${0.45 * weight})`;
      }
    });
    rove(panel[side], panel[side][held && held.side === side ? held.index : 0]);
  }
  drawLines(panel, shown);
}

function describe(text, side, i) {
  const weights = text.pieces
    .map((piece, j) => {
      const [from, to] = side === 'from' ? [i, j] : [j, i];
      return {piece, isSeen: seen(from, to), weight: weightOf(text, from, to)};
    })
    .filter(({isSeen}) => isSeen)
    .sort((one, other) => other.weight - one.weight)
    .slice(0, 3)
    .map(({piece, weight}) => `${piece} ${weight.toFixed(decimals)}`);
  const verb = side === 'from' ? 'attends most to' : 'gets most from';
  const place = text.second === null ? '' : `, text ${text.segments[i] + 1}`;
  return `${text.pieces[i]}, token ${i + 1}${place}, ${verb} `
    + weights.join(', ');
}

function drawLines({text, canvas}, shown) {
  const height = LINE_HEIGHT * text.length;
  const width = canvas.clientWidth;
  const scale = Math.min(devicePixelRatio || 1, LARGEST / height);
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  for (let i = 0; i < text.length; i++) {
    if (shown && shown.side === 'from' && shown.index !== i) continue;
    const [r, g, b] = tokenColour(text, i);
    for (let j = 0; j < text.length; j++) {
      if (shown && shown.side === 'to' && shown.index !== j) continue;
      const weight = weightOf(text, i, j);
      if (weight < FAINTEST) continue;
      const [y, z] = [i, j].map((k) => LINE_HEIGHT * (k + 0.5));
      context.strokeStyle = `rgb(${r} ${g} ${b} / ${weight})`;
      context.lineWidth = 0.75 + 2.25 * weight;
      context.beginPath();
      context.moveTo(2, y);
      context.bezierCurveTo(width / 2, y, width / 2, z, width - 2, z);
      context.stroke();
    }
  }
}
