// The curves of the report. Its data is JSON in the page; texts of runs become text nodes and nothing else.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const kDashes = ["", "7 4", "2 3", "10 3 2 3", "14 5", "4 2 1 2", "1 4", "9 3 9 3 2 3"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const state = { x: "step", log: false, smooth: true, from: null, to: null };

// The view is kept in the page's address, so that it outlives a reload.
function load() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (["step", "tokens", "time"].includes(given.get("x"))) state.x = given.get("x");
  state.log = given.get("log") === "1";
  state.smooth = given.get("smooth") !== "0";
  const number = (name) => given.has(name) && isFinite(given.get(name)) ? Number(given.get(name)) : null;
  state.from = number("from");
  state.to = number("to");
  if (state.from === null || state.to === null || state.from >= state.to) state.from = state.to = null;
}
function save() {
  const view = new URLSearchParams({ x: state.x, log: state.log ? "1" : "0", smooth: state.smooth ? "1" : "0" });
  if (state.from !== null) view.set("from", state.from), view.set("to", state.to);
  history.replaceState(null, "", "#" + view);
}

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}
function html(name, attributes, text) {
  const made = document.createElement(name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}

const colour = (run) => (dark.matches ? data.colours_dark : data.colours)[run % data.colours.length];
const short = (value, unit) => {
  if (value === null || value === undefined) return "-";
  if (unit === "%") return Number((100 * value).toPrecision(4)) + "%";
  const size = Math.abs(value);
  for (const [least, factor, prefix] of [[1e12, 1e12, "T"], [1e9, 1e9, "B"], [1e6, 1e6, "M"], [1e4, 1e3, "K"]])
    if (size >= least) return Number((value / factor).toPrecision(5)) + prefix;
  if (size !== 0 && size < 1e-3) return String(Number(value.toPrecision(3)).toExponential());
  return String(Number(value.toPrecision(6)));
};
const duration = (seconds) => {
  if (seconds < 60) return Number(seconds.toPrecision(3)) + " s";
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  return hours > 0 ? hours + "h" + String(minutes % 60).padStart(2, "0") : minutes + "m" + String(Math.round(seconds) % 60).padStart(2, "0");
};
const along = (value) => state.x === "time" ? duration(value) : short(value);

function xs(series) {
  if (state.x === "time") return series.t;
  if (state.x === "tokens") return series.tokens ??= series.x.map((step) => step * data.runs[series.run].tokens_per_step);
  return series.x;
}

// The first index whose x is not below the value.
function at(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

function ticks(low, high, most) {
  const span = high - low;
  if (!(span > 0)) return [low];
  let step = Math.pow(10, Math.floor(Math.log10(span / most)));
  for (const factor of [1, 2, 5, 10])
    if (span / (step * factor) <= most) { step *= factor; break; }
  const all = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12) && all.length < 20; ++i) all.push(i * step);
  return all;
}
function log_ticks(low, high) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
    for (const factor of [1, 2, 5]) {
      const value = factor * Math.pow(10, power);
      if (value >= low && value <= high) all.push(value);
    }
  return all.length > 8 ? all.filter((_, i) => i % Math.ceil(all.length / 8) === 0) : all;
}

const whole = () => {
  let low = Infinity, high = -Infinity;
  for (const chart of data.charts)
    for (const series of chart.series) {
      const x = xs(series);
      if (x.length > 0) low = Math.min(low, x[0]), high = Math.max(high, x[x.length - 1]);
    }
  return low <= high ? [low, high > low ? high : low + 1] : [0, 1];
};

class Chart {
  constructor(chart, index) {
    this.chart = chart;
    this.figure = html("figure", index === 0 ? { class: "wide" } : {});
    this.figure.id = "chart-" + index;
    this.figure.append(html("figcaption", {}, chart.title));
    this.height = index === 0 ? 320 : 210;
    this.svg = element("svg", { role: "img", tabindex: "0", height: this.height });
    this.readout = html("div", { class: "readout", "aria-live": "polite" });
    this.figure.append(this.svg, this.readout);
    this.cursor = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.drag = null; this.show(null); });
    this.svg.addEventListener("pointerdown", (event) => { if (event.button === 0 && event.pointerType !== "touch") this.drag = this.to_x(event); });
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("dblclick", () => zoom(null, null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }
  shown() { return this.chart.series.filter((series) => state.smooth || series.kind !== "smooth"); }
  to_x(event) {
    const box = this.svg.getBoundingClientRect();
    const part = (event.clientX - box.left - this.left) / (this.right - this.left);
    return this.low + Math.min(1, Math.max(0, part)) * (this.high - this.low);
  }
  px(x) { return this.left + (x - this.low) / (this.high - this.low) * (this.right - this.left); }
  py(y) {
    const [a, b, c] = this.log ? [Math.log10(y), Math.log10(this.bottom_value), Math.log10(this.top_value)]
                               : [y, this.bottom_value, this.top_value];
    return this.base - (a - b) / (c - b) * (this.base - this.top);
  }
  range() {
    let least = Infinity, most = -Infinity;
    for (const series of this.shown()) {
      const x = xs(series);
      for (let i = at(x, this.low); i < x.length && x[i] <= this.high; ++i) {
        const y = series.y[i];
        if (y === null || (this.log && y <= 0)) continue;
        if (y < least) least = y;
        if (y > most) most = y;
      }
    }
    if (least > most) [least, most] = this.log ? [1, 10] : [0, 1];
    if (least === most) [least, most] = this.log ? [least / 2, most * 2] : [least - (Math.abs(least) || 1) / 10, most + (Math.abs(most) || 1) / 10];
    const room = this.log ? 0 : (most - least) * 0.05;
    this.bottom_value = least - room;
    this.top_value = most + room;
  }
  draw() {
    const width = Math.max(260, this.figure.clientWidth);
    [this.left, this.right, this.top, this.base] = [62, width - 8, 8, this.height - 24];
    [this.low, this.high] = state.from === null ? whole() : [state.from, state.to];
    this.log = state.log && this.shown().some((series) => series.y.some((y) => y !== null && y > 0));
    this.range();
    this.svg.setAttribute("viewBox", "0 0 " + width + " " + this.height);
    this.svg.setAttribute("aria-label", this.chart.title + " from " + along(this.low) + " to " + along(this.high) + ". Arrow keys show values, + and - zoom, 0 shows all.");
    this.svg.replaceChildren();
    this.axes();
    this.events();
    for (const series of this.shown()) this.line(series);
    this.svg.append(element("rect", { class: "frame", x: this.left, y: this.top, width: this.right - this.left, height: this.base - this.top }));
    this.overlay = element("g", {});
    this.svg.append(this.overlay);
    this.show(this.cursor);
  }
  axes() {
    for (const value of this.log ? log_ticks(this.bottom_value, this.top_value) : ticks(this.bottom_value, this.top_value, 6)) {
      const y = this.py(value);
      this.svg.append(element("line", { class: "grid", x1: this.left, x2: this.right, y1: y, y2: y }),
                      element("text", { x: this.left - 6, y: y + 4, "text-anchor": "end" }, short(value, this.chart.unit)));
    }
    for (const value of ticks(this.low, this.high, Math.max(2, Math.floor((this.right - this.left) / 90)))) {
      const x = this.px(value);
      this.svg.append(element("line", { class: "grid", x1: x, x2: x, y1: this.top, y2: this.base }),
                      element("text", { x: x, y: this.base + 17, "text-anchor": x > this.right - 20 ? "end" : "middle" }, along(value)));
    }
  }
  events() {
    if (state.x === "time") return;
    for (const event of data.events) {
      const value = state.x === "tokens" ? event.step * data.runs[event.run].tokens_per_step : event.step;
      if (value < this.low || value > this.high) continue;
      const line = element("line", { class: "event", x1: this.px(value), x2: this.px(value), y1: this.top, y2: this.base });
      line.append(element("title", {}, event.kind + " at step " + event.step + ": " + event.text));
      this.svg.append(line);
    }
  }
  line(series) {
    const x = xs(series), end = Math.min(x.length, at(x, this.high) + 1);
    let path = "", pen = false;
    for (let i = Math.max(0, at(x, this.low) - 1); i < end; ++i) {
      const y = series.y[i];
      if (y === null || (this.log && y <= 0)) { pen = false; continue; }
      path += (pen ? "L" : "M") + this.px(x[i]).toFixed(1) + " " + this.py(y).toFixed(1);
      pen = true;
    }
    const raw = series.kind === "raw" && state.smooth && this.chart.series.some((each) => each.kind === "smooth");
    const look = { d: path || "M0 0", fill: "none", stroke: colour(series.run), "clip-path": "url(#clip-" + this.figure.id + ")",
                   "stroke-width": series.kind === "validation" ? 2.5 : series.kind === "smooth" ? 2 : 1.3,
                   "stroke-dasharray": series.kind === "validation" ? "1 5" : kDashes[series.run % kDashes.length],
                   "stroke-linecap": series.kind === "validation" ? "round" : "butt",
                   opacity: series.kind === "discarded" ? 0.4 : raw ? 0.35 : 1 };
    if (!this.svg.querySelector("clipPath")) {
      const clip = element("clipPath", { id: "clip-" + this.figure.id });
      clip.append(element("rect", { x: this.left, y: this.top, width: this.right - this.left, height: this.base - this.top }));
      this.svg.append(clip);
    }
    this.svg.append(element("path", look));
  }
  point(event) {
    const x = this.to_x(event);
    this.show(x);
    if (this.drag !== null && this.drag !== undefined && Math.abs(this.px(x) - this.px(this.drag)) > 4)
      this.overlay.append(element("rect", { class: "zoom", x: Math.min(this.px(x), this.px(this.drag)), y: this.top,
                                            width: Math.abs(this.px(x) - this.px(this.drag)), height: this.base - this.top }));
  }
  release(event) {
    const from = this.drag, to = this.to_x(event);
    this.drag = null;
    if (from !== null && from !== undefined && Math.abs(this.px(from) - this.px(to)) > 8) zoom(Math.min(from, to), Math.max(from, to));
  }
  key(event) {
    const span = this.high - this.low, middle = this.cursor ?? (this.low + this.high) / 2;
    const is = (...keys) => keys.includes(event.key);
    if (is("ArrowLeft", "ArrowRight")) this.show(this.next(middle, event.key === "ArrowRight"));
    else if (is("+", "=")) zoom(middle - span / 4, middle + span / 4);
    else if (is("-")) zoom(middle - span, middle + span);
    else if (is("0", "Escape")) zoom(null, null);
    else return;
    event.preventDefault();
  }
  // The next point of the first series, at least a pixel away.
  next(from, forward) {
    const series = this.shown()[0];
    if (!series || series.x.length === 0) return from;
    const x = xs(series), pixel = (this.high - this.low) / (this.right - this.left);
    const i = forward ? at(x, from + pixel) : at(x, from - pixel) - 1;
    return Math.min(this.high, Math.max(this.low, x[Math.min(x.length - 1, Math.max(0, i))]));
  }
  show(x) {
    this.cursor = x;
    this.overlay.replaceChildren();
    if (x === null) { this.readout.textContent = ""; return; }
    let words = [];
    for (const series of this.shown()) {
      const list = xs(series);
      if (list.length === 0 || x < list[0] - (this.high - this.low) / 50 || x > list[list.length - 1] + (this.high - this.low) / 50) continue;
      let i = Math.min(list.length - 1, at(list, x));
      if (i > 0 && x - list[i - 1] < list[i] - x) --i;
      words.push((data.runs.length > 1 ? data.runs[series.run].name + " " : "") + (series.kind === "raw" ? "" : series.kind + " ") +
                 "step " + series.x[i] + ": " + (series.y[i] === null ? "no number" : String(series.y[i])));
    }
    this.readout.textContent = words.join("; ");
    this.overlay.append(element("line", { class: "cursor", x1: this.px(x), x2: this.px(x), y1: this.top, y2: this.base }));
  }
}

const charts = data.charts.map((chart, index) => new Chart(chart, index));
function draw() {
  for (const chart of charts) chart.draw();
  document.getElementById("reset").disabled = state.from === null;
}
function zoom(from, to) {
  const [low, high] = whole();
  if (from !== null) from = Math.max(from, low), to = Math.min(to, high);
  if (from !== null && (from <= low && to >= high || !(to > from))) from = to = null;
  state.from = from;
  state.to = to;
  save();
  draw();
}

function legend() {
  const list = document.getElementById("legend");
  list.replaceChildren();
  data.runs.forEach((run, index) => {
    const item = html("li", {}), line = element("svg", { "aria-hidden": "true", viewBox: "0 0 34 10" });
    line.append(element("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: colour(index), "stroke-width": 2.5, "stroke-dasharray": kDashes[index % kDashes.length] }));
    item.append(line, document.createTextNode(run.name));
    list.append(item);
  });
  const text = [];
  const has = (kind) => data.charts.some((chart) => chart.series.some((series) => series.kind === kind));
  if (has("smooth")) text.push("pale: every step, strong: smoothed");
  if (has("validation")) text.push("dots: validation");
  if (has("discarded")) text.push("pale branches: steps that a resumed run made again");
  if (data.events.length > 0) text.push("vertical lines: what went wrong, and restarts");
  if (text.length > 0) list.append(html("li", {}, text.join("; ")));
}

const x_axis = document.getElementById("x"), log = document.getElementById("log"), smooth = document.getElementById("smooth");
function sync() {
  load();
  x_axis.value = state.x;
  log.checked = state.log;
  smooth.checked = state.smooth;
}
function change() {
  const moved = state.x !== x_axis.value;
  state.x = x_axis.value;
  state.log = log.checked;
  state.smooth = smooth.checked;
  if (moved) state.from = state.to = null;
  save();
  draw();
}
for (const control of [x_axis, log, smooth]) control.addEventListener("change", change);
document.getElementById("reset").addEventListener("click", () => zoom(null, null));
// A link to a step shows its surroundings.
document.addEventListener("click", (event) => {
  const link = event.target.closest ? event.target.closest("a[data-step]") : null;
  if (!link) return;
  event.preventDefault();
  state.x = x_axis.value = "step";
  const step = Number(link.dataset.step), [low, high] = whole(), around = Math.max(5, (high - low) / 20);
  zoom(step - around, step + around);
  charts[0].svg.focus();
  charts[0].show(Math.max(charts[0].low, Math.min(charts[0].high, step)));
});
document.getElementById("charts").append(...charts.map((chart) => chart.figure));
document.getElementById("curves").hidden = charts.length === 0;
sync();
legend();
draw();
addEventListener("resize", draw);
addEventListener("hashchange", () => { sync(); draw(); });
dark.addEventListener("change", () => { legend(); draw(); });
if (data.every > 0) setTimeout(() => location.reload(), 1000 * data.every);
})();
