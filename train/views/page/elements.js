// Elements, colours, and what several views say of a token.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function colour(name) {
  const made = document.createElement('canvas').getContext('2d');
  made.fillStyle = getComputedStyle(document.documentElement)
    .getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(made.fillStyle.slice(i, i + 2), 16));
}
let colours;
function readColours() {
  colours = {
    first: colour('--first'), second: colour('--second'),
    ink: colour('--ink'), soft: colour('--soft'),
  };
}

const segmentOf = (text, i) => text.segments[i] ? 'second' : 'first';

function tokenColour(text, i) {
  return text.symbols[i] ? colours.soft : colours[segmentOf(text, i)];
}

// Of several elements, Tab reaches one and arrow keys the others.
function rove(elements, current) {
  for (const each of elements) {
    each.tabIndex = each === current ? 0 : -1;
  }
}

function whole(text) {
  return text.second === null ? text.first : `${text.first} / ${text.second}`;
}

// As much as a line of the page has room for.
function label(text) {
  const shown = whole(text);
  return shown.length > 120 ? shown.slice(0, 119) + '…' : shown;
}
