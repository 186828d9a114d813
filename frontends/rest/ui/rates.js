// Rates out of counts: the API tells what ever came and what is done, and two looks make a rate. And their charts.

const SHOWN_MS = 120_000;
const RECENT_MS = 10_000;
// Two looks that are closer tell little of a rate.
const LEAST_MS = 900;
const SVG = "http://www.w3.org/2000/svg";

const known = new Map();

// Take what a queue has counted at a moment of this page's clock.
export function feed(name, counts, now) {
  const told = known.get(name) ?? {last: null, samples: []};
  known.set(name, told);
  const {last} = told;
  if (last && now - last.now < LEAST_MS) return;
  // A queue that was made anew counts from the beginning.
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

// The rates of the last seconds; null before there are any.
export function recent(name) {
  const found = samples(name);
  const some = found.filter((each) => each.now > found.at(-1).now - RECENT_MS);
  const mean = (what) => (some.length ? some.reduce((sum, each) => sum + each[what], 0) / some.length : null);
  return {come: mean("come"), gone: mean("gone")};
}

// Draw both rates: what came as a line, what is done as an area; gives what the top stands for.
export function draw(svg, name) {
  const found = samples(name);
  return plot(svg, found, {until: found.at(-1)?.now, span: SHOWN_MS, line: "come", area: "gone"});
}

// Draw records of moments up to `until`: one of their figures as a line, another one as an area; gives what the top stands for.
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
