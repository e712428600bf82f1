// Builds the page and draws all of it.
function buildChoices() {
  const of = page.texts.length > 1 ? `, ${page.texts.length} texts` : '';
  byId('about').textContent =
    `${page.name}: ${layers} layers of ${heads} heads${of}`;
  byId('rounding').textContent = ' Weights are rounded to 1/'
    + (page.bits === 8 ? '255.' : '65,535.');
  if (page.texts.length === 1) return;
  byId('texts').hidden = false;
  for (const id of ['main', 'beside']) {
    const choice = byId(id);
    if (id === 'beside') choice.append(make('option', {value: ''}, 'nothing'));
    page.texts.forEach((text, i) =>
      choice.append(make('option', {value: i}, `${i + 1}: ${label(text)}`)));
    choice.value = state[id] ?? '';
    const tell = () => {
      const text = page.texts[choice.value];
      choice.title = text ? whole(text) : '';
    };
    tell();
    choice.addEventListener('change', () => {
      state[id] = choice.value === '' ? null : Number(choice.value);
      state.active = state.main;
      tell();
      buildPanels();
      drawAll();
    });
  }
}

function drawAll() {
  readColours();
  drawGrid();
  panels.forEach(drawPanel);
  return drawDetails();
}

const darkness = matchMedia('(prefers-color-scheme: dark)');

async function begin() {
  await Promise.all(page.texts.map(unpackWeights));
  readColours();
  buildChoices();
  buildGrid();
  buildPanels();
  await drawAll();
  for (const id of Object.keys(tables)) {
    byId(id).addEventListener('toggle', () => drawTable(id));
  }
  darkness.addEventListener('change', drawAll);
  addEventListener('resize', () => panels.forEach(drawPanel));
  // Painted: the milliseconds since the file was opened.
  requestAnimationFrame(() => setTimeout(() => {
    document.body.dataset.drawn = Math.round(performance.now());
  }));
}

begin().catch((error) => {
  byId('problem').textContent =
    `This browser cannot draw the page: ${error.message}`;
  byId('problem').hidden = false;
});
