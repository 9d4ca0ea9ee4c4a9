"use strict";

/* Draw a density with its central intervals, its median and an axis. */

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260;
const LABEL_WIDTH = 40; // pixels for half of a tick label
const EDGE = { left: 14, right: 14, top: 14, bottom: 34 };

function part(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const AXIS = { scale: "linear" };
const shortNumber = (value) => Scales.fullText(value, AXIS); // in scales.js of the report

function drawCurve(svg, found) {
  const width = Math.max(200, svg.clientWidth || 600);
  const { y, height } = found.density;
  const low = y[0], high = y[y.length - 1];
  const top = Math.max(...height.map((one) => one ?? 0)) || 1;
  const floor = HEIGHT - EDGE.bottom;
  const scale = Scales.makeScale(AXIS, [low, high], EDGE.left, width - EDGE.right);
  const atX = scale.at;
  const atY = (value) => floor - ((value ?? 0) / top) * (floor - EDGE.top);
  const heightAt = (value) => {
    const position = ((value - low) / (high - low)) * (y.length - 1);
    const i = Math.min(y.length - 2, Math.max(0, Math.floor(position)));
    return (height[i] ?? 0) + (position - i) * ((height[i + 1] ?? 0) - (height[i] ?? 0));
  };
  const point = (value, h) => `${atX(value).toFixed(1)} ${atY(h).toFixed(1)}`;
  const area = (from, to) => {
    const first = Math.max(from ?? low, low), last = Math.min(to ?? high, high);
    const inside = y.map((value, i) => [value, height[i]]);
    const points = [[first, heightAt(first)]]
      .concat(inside.filter(([value]) => value > first && value < last))
      .concat([[last, heightAt(last)]]);
    return `M${point(first, 0)} L${points.map(([v, h]) => point(v, h)).join(" L")} L${point(last, 0)} Z`;
  };
  const [half, most] = found.intervals;
  const parts = [
    part("path", { class: "rest", d: area(low, high) }),
    part("path", { class: "most", d: area(most.lower, most.upper) }),
    part("path", { class: "half", d: area(half.lower, half.upper) }),
    part("path", {
      class: "outline",
      d: `M${y.map((value, i) => point(value, height[i])).join(" L")}`,
    }),
    part("line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: floor, y2: floor }),
  ];
  if (found.median !== null) {
    const x = atX(found.median).toFixed(1);
    parts.push(part("line", { class: "median", x1: x, x2: x, y1: EDGE.top, y2: floor }));
  }
  for (const { value, text } of scale.ticks(width / 90)) {
    const x = atX(value).toFixed(1);
    parts.push(part("line", { class: "tick", x1: x, x2: x, y1: floor, y2: floor + 5 }));
    const anchor = x > width - LABEL_WIDTH ? "end" : x < LABEL_WIDTH ? "start" : "middle"; // not cut off
    parts.push(part("text", { x, y: floor + 20, "text-anchor": anchor }, text));
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren(...parts);
}
