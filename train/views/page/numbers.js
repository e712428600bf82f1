// Numbers of the page: the state, and the arrays that it holds packed.
'use strict';
const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId('data').textContent);
const {layers, heads, dims} = page;
const LINE_HEIGHT = 22; // of a token, as in the style
const THUMBNAIL = 64; // cells of a picture at most
const LARGEST = 16000; // pixels of a canvas that browsers draw
const FAINTEST = 2 / 255; // weight of a line
const decimals = page.bits === 8 ? 3 : 5;

// What is shown. Of each text: the token that is held, {side, index} or null,
// and the key whose neurons are shown, null for that of the largest weight.
const state = {
  main: 0,
  beside: page.texts.length > 1 ? 1 : null,
  layer: page.texts[0].open[0],
  head: page.texts[0].open[1],
  measure: 'weights',
  active: 0, // the text of which neurons and tables are
  held: page.texts.map((text) => ({side: 'from', index: text.open[2]})),
  hover: null, // {text, side, index}
  key: page.texts.map(() => null),
};

async function unpack(packed, type) {
  const binary = atob(packed);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream();
  const whole = stream.pipeThrough(new DecompressionStream('deflate'));
  return new type(await new Response(whole).arrayBuffer());
}

const neurons = page.texts.map(() => null);

async function unpackWeights(text) {
  text.length = text.pieces.length;
  text.weights = await unpack(
    text.weights, page.bits === 8 ? Uint8Array : Uint16Array);
}

function unpackNeurons(number) {
  neurons[number] ||= (async () => {
    const text = page.texts[number];
    const type = page.bits === 8 ? Int8Array : Int16Array;
    const [query, key, querySteps, keySteps] = await Promise.all([
      unpack(text.query, type), unpack(text.key, type),
      unpack(text.querySteps, Int8Array), unpack(text.keySteps, Int8Array),
    ]);
    return {query, key, querySteps, keySteps};
  })();
  return neurons[number];
}

const headNumber = () => state.layer * heads + state.head;

function weightOf(text, from, to, head = headNumber()) {
  const top = page.bits === 8 ? 255 : 65535;
  return text.weights[(head * text.length + from) * text.length + to] / top;
}

// The H values of a token: 'query' or 'key'.
function vectorOf(packed, name, token, length) {
  const head = headNumber();
  const values = new Float64Array(dims);
  for (let d = 0; d < dims; d++) {
    const step = 2 ** (packed[name + 'Steps'][head * dims + d] / 8);
    values[d] = packed[name][(head * length + token) * dims + d] * step;
  }
  return values;
}

const seen = (from, to) => !page.causal || to <= from;
const percent = (share) => `${Math.round(100 * share)} %`;
const titles = new Map(page.measures.map((each) => [each.name, each.title]));
