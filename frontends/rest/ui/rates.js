// Rates and their charts: the API has running totals, and the difference of two refreshes is a rate.

const SHOWN_MS = 120_000;
const RECENT_MS = 10_000;
// Refreshes closer together give an inexact rate.
const LEAST_MS = 900;
const SVG = "http://www.w3.org/2000/svg";

const known = new Map();

// Record a queue's totals at a time by this page's clock.
export function feed(name, counts, now) {
  const told = known.get(name) ?? {last: null, samples: []};
  known.set(name, told);
  const {last} = told;
  if (last && now - last.now < LEAST_MS) return;
  // A queue that was created again counts from zero.
  if (last && counts.published >= last.published && counts.finished >= last.finished) {
    const seconds = (now - last.now) / 1000;
    told.samples.push({
      now,
      come: (counts.published - last.published) / seconds,
      gone: (counts.finished - last.finished) / seconds,
    });
    told.samples = told.samples.filter((each) => each.now >= now - SHOWN_MS);
  }
  told.last = {now, published: counts.published, finished: counts.finished};
}

export function forget(names) {
  for (const name of known.keys()) if (!names.has(name)) known.delete(name);
}

export function samples(name) {
  return known.get(name)?.samples ?? [];
}

// The rates of the last seconds, or null.
export function recent(name) {
  const found = samples(name);
  const some = found.filter((each) => each.now > found.at(-1).now - RECENT_MS);
  const mean = (what) => (some.length ? some.reduce((sum, each) => sum + each[what], 0) / some.length : null);
  return {come: mean("come"), gone: mean("gone")};
}

// Draw both rates: published as a line, completed as an area; returns the value at the top.
export function draw(svg, name) {
  const found = samples(name);
  return plot(svg, found, {until: found.at(-1)?.now, span: SHOWN_MS, line: "come", area: "gone"});
}

// Draw records up to the time `until`: one figure as a line, another as an area; returns the value at the top.
export function plot(svg, found, {until, span, line, area}) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const top = Math.max(1, ...found.map((each) => Math.max(each[line], each[area])));
  const x = (each) => (width * (1 - (until - each.now) / span)).toFixed(1);
  const points = (what) => found.map((each) => `${x(each)},${(height - 1 - (each[what] / top) * (height - 3)).toFixed(1)}`);
  if (!svg.firstChild) {
    for (const kind of ["area", "line"]) {
      const shape = document.createElementNS(SVG, kind === "area" ? "polygon" : "polyline");
      shape.setAttribute("class", kind);
      svg.append(shape);
    }
  }
  const floor = found.length ? [`${x(found[0])},${height}`, `${x(found.at(-1))},${height}`] : [];
  svg.firstChild.setAttribute("points", [floor[0], ...points(area), floor[1]].filter(Boolean).join(" "));
  svg.lastChild.setAttribute("points", points(line).join(" "));
  return top;
}

export function sparkline() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 120 26");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  return svg;
}
