// Charts as SVG, drawn from their data, with hover, zoom by pointer and keys, and a table.

const Charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const FONT = 12, RADIUS = 3.2, NEAR = 24;
  let counter = 0;

  function svg(name, attributes = {}, text = null) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    return element;
  }

  function html(name, attributes = {}, text = null) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    return element;
  }

  const ruler = document.createElement("canvas").getContext("2d");
  function textWidth(text) {
    ruler.font = `${FONT}px system-ui, sans-serif`;
    return ruler.measureText(text).width;
  }

  function shortened(text, width) {
    if (textWidth(text) <= width) return text;
    let end = text.length;
    while (end > 1 && textWidth(text.slice(0, end) + "…") > width) end--;
    return text.slice(0, end) + "…";
  }

  const isNumber = (value) => value !== null && value !== undefined;

  class Plot {
    constructor(figure, spec) {
      this.figure = figure;
      this.frame = figure.querySelector(".plot");
      this.tip = figure.querySelector(".tip");
      this.clip = `clip-${++counter}`;
      this.bind();
      this.show(spec);
      new ResizeObserver(() => {
        const width = this.frame.clientWidth;
        if (width >= 160 && Math.abs(width - this.width) > 1) this.draw();
      }).observe(this.frame);
    }

    show(spec) {
      this.spec = spec;
      this.zoomed = null;
      this.base = {
        x: Scales.findDomain(spec.x, this.values("x")),
        y: Scales.findDomain(spec.y, this.values("y")),
      };
      if (spec.layers.some((layer) => layer.mark === "rule" && !layer.x && !layer.y)
          && spec.x.scale === spec.y.scale && spec.x.low === null) {
        // Both axes of a diagonal have the same range, so that it is one.
        const both = [Math.min(this.base.x[0], this.base.y[0]), Math.max(this.base.x[1], this.base.y[1])];
        this.base.x = this.base.x[0] < both[0] ? both : [...this.base.x];
      }
      this.fillLegend();
      this.fillTable();
      this.draw();
    }

    // All values that an axis must hold.
    values(axis) {
      const across = this.spec.y.scale === "category";
      const found = [];
      for (const layer of this.spec.layers) {
        const ends = [...(layer.lower || []), ...(layer.upper || [])];
        if (layer[axis]) found.push(...layer[axis]);
        if (layer.mark === "bars" && axis === "x") found.push(0);
        if (layer.mark === "columns") {
          if (axis === "x") found.push(...ends);
          else found.push(0);
        } else if ((axis === "x") === across) {
          found.push(...ends);
        }
      }
      return found.filter(isNumber);
    }

    draw() {
      const { spec } = this;
      const width = this.frame.clientWidth; // of a frame that is not shown, 0
      this.width = width >= 160 ? width : this.width || 640;
      this.height = spec.height;
      const domains = this.zoomed || this.base;
      const isCategory = spec.y.scale === "category";
      const probe = Scales.makeScale(spec.y, domains.y, 0, 1);
      const rows = Math.max(2, Math.floor(this.height / 70));
      const widest = Math.max(...probe.ticks(rows).map(({ text }) => textWidth(text)), 10);
      const left = Math.min(widest, this.width * 0.36) + (spec.y.label ? 34 : 14);
      this.box = { left, right: this.width - 14, top: 12, bottom: this.height - 46 };
      const { right, top, bottom } = this.box;
      this.x = Scales.makeScale(spec.x, domains.x, left, right);
      this.y = Scales.makeScale(spec.y, domains.y, ...(isCategory ? [top, bottom] : [bottom, top]));

      const root = svg("svg", {
        viewBox: `0 0 ${this.width} ${this.height}`,
        role: "img",
        "aria-label": `${spec.title}. ${spec.description}`,
      });
      const clip = svg("clipPath", { id: this.clip });
      const margin = this.zoomed ? 0 : 6; // marks on the edge are whole
      clip.append(svg("rect", { x: left - margin, y: top - margin, width: right - left + 2 * margin,
        height: bottom - top + 2 * margin }));
      root.append(clip);
      this.drawAxes(root, rows);
      const marks = svg("g", { class: "marks", "clip-path": `url(#${this.clip})` });
      this.targets = [];
      for (const layer of spec.layers) this.drawLayer(marks, layer);
      this.ring = svg("circle", { class: "ring", r: RADIUS + 3, visibility: "hidden" });
      marks.append(this.ring);
      root.append(marks);
      this.selection = svg("rect", { class: "selection", visibility: "hidden" });
      root.append(this.selection);
      this.frame.querySelector("svg")?.remove();
      this.frame.prepend(root);
      this.root = root;
      this.figure.toggleAttribute("data-zoomed", this.zoomed !== null);
      this.hideTip();
    }

    drawAxes(root, rows) {
      const { left, right, top, bottom } = this.box;
      const { spec } = this;
      const group = svg("g", { class: "axes", "aria-hidden": "true" });
      const columns = Math.max(3, Math.floor((right - left) / (spec.x.scale === "time" ? 95 : 70)));
      for (const { value, text } of this.x.ticks(columns)) {
        const at = this.x.at(value);
        group.append(svg("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }));
        const half = textWidth(text) / 2;
        const inside = Math.min(Math.max(at, left - 10 + half), this.width - half - 2);
        group.append(svg("text", { x: inside, y: bottom + 17, "text-anchor": "middle" }, text));
      }
      const room = left - (spec.y.label ? 30 : 10);
      for (const { value, text } of this.y.ticks(rows)) {
        const at = this.y.at(value);
        group.append(svg("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
        const label = svg(
          "text", { x: left - 7, y: at + 4, "text-anchor": "end" }, shortened(text, room));
        if (label.textContent !== text) label.append(svg("title", {}, text));
        group.append(label);
      }
      const name = shortened(spec.x.label, this.width - 12);
      const half = textWidth(name) / 2 + 4;
      const middle = Math.max(half, Math.min((left + right) / 2, this.width - half));
      group.append(svg("text", { class: "name", x: middle, y: bottom + 38,
        "text-anchor": "middle" }, name));
      if (spec.y.label) {
        const height = (top + bottom) / 2;
        group.append(svg("text", { class: "name", x: 12, y: height, "text-anchor": "middle",
          transform: `rotate(-90 12 ${height})` }, shortened(spec.y.label, bottom - top + 20)));
      }
      group.append(svg("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }));
      root.append(group);
    }

    drawLayer(group, layer) {
      const { left, right, top, bottom } = this.box;
      const classes = `mark ${layer.mark} color-${layer.color}` + (layer.dashed ? " dashed" : "");
      const fix = (value) => (Number.isFinite(value) ? Math.round(value * 10) / 10 : null);
      const px = (value) => (isNumber(value) ? fix(this.x.at(value)) : null);
      const py = (value) => (isNumber(value) ? fix(this.y.at(value)) : null);
      const across = this.spec.y.scale === "category";
      const addTarget = (i, x, y) => {
        if (layer.label && x !== null && y !== null) this.targets.push({ layer, i, x, y });
      };
      if (layer.mark === "points") {
        layer.x.forEach((value, i) => {
          const [x, y] = [px(value), py(layer.y[i])];
          if (x === null || y === null) return;
          const shape = layer.color === "miss" && this.spec.layers.length > 3
            ? svg("path", { class: classes, d: `M${x} ${y - 4.4}l4.4 4.4l-4.4 4.4l-4.4 -4.4z` })
            : svg("circle", { class: classes, cx: x, cy: y, r: RADIUS });
          group.append(shape);
          addTarget(i, x, y);
        });
      } else if (layer.mark === "line") {
        let path = "";
        layer.x.forEach((value, i) => {
          const [x, y] = [px(value), py(layer.y[i])];
          if (x === null || y === null) return;
          path += `${path ? "L" : "M"}${x} ${y}`;
          addTarget(i, x, y);
        });
        group.append(svg("path", { class: classes, d: path || "M0 0" }));
      } else if (layer.mark === "band") {
        const ends = layer.x.map((value, i) => [px(value), py(layer.lower[i]), py(layer.upper[i])])
          .filter((end) => end.every((value) => value !== null));
        const up = ends.map(([x, , high]) => `${x} ${high}`);
        const down = ends.reverse().map(([x, low]) => `${x} ${low}`);
        if (up.length) group.append(svg("path", { class: classes, d: `M${[...up, ...down].join("L")}Z` }));
      } else if (layer.mark === "intervals") {
        let path = "";
        layer.lower.forEach((low, i) => {
          if (across) {
            const [a, b, y] = [px(low) ?? left, px(layer.upper[i]) ?? right, py(layer.y[i])];
            path += `M${a} ${y}H${b}`;
          } else {
            const x = px(layer.x[i]);
            const [a, b] = [py(low) ?? bottom + 5, py(layer.upper[i]) ?? top - 5];
            if (x !== null) path += `M${x} ${a}V${b}`;
          }
        });
        group.append(svg("path", { class: classes, d: path || "M0 0" }));
      } else if (layer.mark === "bars") {
        const thick = Math.min(18, 0.7 * Math.abs(this.y.at(1) - this.y.at(0)));
        layer.x.forEach((value, i) => {
          const [zero, x, y] = [px(this.spec.x.scale === "log" ? null : 0) ?? left, px(value), py(layer.y[i])];
          if (x === null || y === null) return;
          group.append(svg("rect", { class: classes, x: Math.min(zero, x), y: y - thick / 2,
            width: Math.max(Math.abs(x - zero), 1), height: thick }));
          addTarget(i, x, y);
        });
      } else if (layer.mark === "columns") {
        layer.y.forEach((value, i) => {
          const [a, b, y, zero] = [px(layer.lower[i]), px(layer.upper[i]), py(value), py(0)];
          group.append(svg("rect", { class: classes, x: a + 0.5, y: Math.min(y, zero),
            width: Math.max(b - a - 1, 1), height: Math.abs(zero - y) }));
          addTarget(i, (a + b) / 2, y);
        });
      } else if (layer.mark === "rule") {
        let path = "";
        if (layer.x) for (const value of layer.x) path += `M${px(value)} ${top}V${bottom}`;
        else if (layer.y) for (const value of layer.y) path += `M${left} ${py(value)}H${right}`;
        else {
          // y = x, in transformed values, as both axes have one scale.
          const [low, high] = this.x.domain;
          const [yLow, yHigh] = this.y.domain;
          const at = (value) => bottom + ((value - yLow) / (yHigh - yLow)) * (top - bottom);
          path = `M${left} ${fix(at(low))}L${right} ${fix(at(high))}`;
        }
        group.append(svg("path", { class: classes, d: path || "M0 0" }));
      }
    }

    fillLegend() {
      const legend = this.figure.querySelector(".legend");
      legend.replaceChildren();
      const named = this.spec.layers.filter((layer) => layer.label);
      if (named.length < 2) return;
      for (const layer of named) {
        const item = html("li");
        const sample = svg("svg", { width: 22, height: 12, viewBox: "0 0 22 12", "aria-hidden": "true" });
        const classes = `mark ${layer.mark} color-${layer.color}` + (layer.dashed ? " dashed" : "");
        const shapes = {
          points: layer.color === "miss" && this.spec.layers.length > 3
            ? ["path", { d: "M11 1.6l4.4 4.4l-4.4 4.4l-4.4 -4.4z" }]
            : ["circle", { cx: 11, cy: 6, r: RADIUS + 0.6 }],
          line: ["path", { d: "M1 6H21" }],
          rule: ["path", { d: "M1 6H21" }],
          intervals: ["path", { d: "M11 0V12" }],
        };
        const [name, shape] = shapes[layer.mark] || ["rect", { x: 2, y: 1, width: 18, height: 10 }];
        sample.append(svg(name, { class: classes, ...shape }));
        item.append(sample, document.createTextNode(layer.label));
        legend.append(item);
      }
    }

    // The data as a table, made when it is asked for.
    fillTable() {
      const details = this.figure.querySelector("details.data");
      const holder = details.querySelector(".holder");
      holder.replaceChildren();
      details.ontoggle = () => {
        if (!details.open || holder.firstChild) return;
        const table = html("table");
        const { x, y } = this.spec;
        const across = y.scale === "category";
        const header = html("tr");
        for (const text of ["series", x.label || "x", y.label || "y", "from", "to", ""]) {
          header.append(html("th", { scope: "col" }, text));
        }
        table.append(html("thead"), html("tbody"));
        table.tHead.append(header);
        let left = 400;
        for (const layer of this.spec.layers) {
          const size = Math.max(...["x", "y", "lower"].map((name) => layer[name]?.length || 0));
          if (layer.mark === "rule") continue;
          const ends = across || layer.mark === "columns" ? x : y;
          for (let i = 0; i < size && left > 0; i++, left--) {
            const row = html("tr");
            const cell = (values, axis) => row.append(
              html("td", {}, values ? Scales.fullText(values[i], axis) : ""));
            row.append(html("td", {}, layer.label));
            cell(layer.x, x);
            cell(layer.y, y);
            cell(layer.lower, ends);
            cell(layer.upper, ends);
            row.append(html("td", {}, layer.texts?.[i] || ""));
            table.tBodies[0].append(row);
          }
        }
        holder.append(table);
        if (left <= 0) holder.append(html("p", { class: "note" }, "The first 400 marks."));
      };
      if (details.open) details.ontoggle();
    }

    nearest(x, y) {
      let best = null, distance = NEAR ** 2;
      const { left, right, top, bottom } = this.box;
      for (const target of this.targets) {
        if (target.x < left - 2 || target.x > right + 2) continue;
        if (target.y < top - 2 || target.y > bottom + 2) continue;
        const isFlat = target.layer.mark === "bars";
        const isTall = target.layer.mark === "columns" || target.layer.mark === "line";
        const dx = isFlat && x < target.x ? 0 : target.x - x;
        const dy = isTall && target.layer.mark === "columns" && y > target.y ? 0 : target.y - y;
        const found = dx * dx + dy * dy;
        if (found < distance) [best, distance] = [target, found];
      }
      return best;
    }

    showTip(target) {
      const { layer, i } = target;
      const { x, y } = this.spec;
      this.tip.replaceChildren(html("strong", {}, layer.label));
      const lines = [];
      if (layer.mark === "columns") {
        lines.push(`${Scales.fullText(layer.lower[i], x)} to ${Scales.fullText(layer.upper[i], x)}`);
      } else if (layer.x) lines.push(`${x.label}: ${Scales.fullText(layer.x[i], x)}`);
      if (layer.y) lines.push(y.label ? `${y.label}: ${Scales.fullText(layer.y[i], y)}`
        : Scales.fullText(layer.y[i], y));
      const around = this.spec.layers.find((other) => other !== layer
        && ["intervals", "band"].includes(other.mark) && other.lower.length === layer.y?.length);
      if (around) {
        const axis = y.scale === "category" ? x : y;
        const [low, high] = [around.lower[i], around.upper[i]];
        lines.push(`${around.label}: ${Scales.fullText(low, axis)} to ${Scales.fullText(high, axis)}`);
      }
      if (layer.texts) lines.push(layer.texts[i]);
      for (const line of lines) this.tip.append(html("span", {}, line));
      this.tip.hidden = false;
      const scale = this.frame.clientWidth / this.width;
      const left = target.x * scale + 12;
      const isRight = left + this.tip.offsetWidth > this.frame.clientWidth;
      this.tip.style.left = `${Math.max(0, isRight ? target.x * scale - this.tip.offsetWidth - 12 : left)}px`;
      this.tip.style.top = `${Math.max(0, target.y * scale - this.tip.offsetHeight - 8)}px`;
      this.ring.setAttribute("cx", target.x);
      this.ring.setAttribute("cy", target.y);
      this.ring.setAttribute("visibility", "visible");
    }

    hideTip() {
      this.tip.hidden = true;
      this.ring?.setAttribute("visibility", "hidden");
    }

    // Zoom by a factor around the middle, and move by shares of what is shown.
    move(factor, dx = 0, dy = 0) {
      const now = this.zoomed || this.base;
      const change = ([low, high], share) => {
        const middle = (low + high) / 2 + share * (high - low);
        const half = ((high - low) / 2) * factor;
        return [middle - half, middle + half];
      };
      const free = this.spec.y.scale === "category";
      this.zoomed = { x: change(now.x, dx), y: free ? now.y : change(now.y, dy) };
      this.draw();
    }

    reset() {
      this.zoomed = null;
      this.draw();
    }

    zoomTo(a, b) {
      const order = (one, other) => [Math.min(one, other), Math.max(one, other)];
      const free = this.spec.y.scale === "category";
      this.zoomed = {
        x: order(this.x.transformedAt(a.x), this.x.transformedAt(b.x)),
        y: free ? this.y.domain : order(this.y.transformedAt(a.y), this.y.transformedAt(b.y)),
      };
      this.draw();
    }

    bind() {
      const point = (event) => {
        const bounds = this.root.getBoundingClientRect();
        const scale = this.width / bounds.width;
        return { x: (event.clientX - bounds.left) * scale, y: (event.clientY - bounds.top) * scale };
      };
      let start = null;
      this.frame.addEventListener("pointerdown", (event) => {
        if (event.button !== 0 || event.pointerType === "touch") return;
        start = point(event);
        this.frame.setPointerCapture(event.pointerId);
      });
      this.frame.addEventListener("pointermove", (event) => {
        const at = point(event);
        if (start) {
          const [x, y] = [Math.min(start.x, at.x), Math.min(start.y, at.y)];
          const size = { x, y, width: Math.abs(at.x - start.x), height: Math.abs(at.y - start.y) };
          for (const [key, value] of Object.entries(size)) this.selection.setAttribute(key, value);
          this.selection.setAttribute("visibility", "visible");
          this.hideTip();
          return;
        }
        const target = this.nearest(at.x, at.y);
        if (target) this.showTip(target);
        else this.hideTip();
      });
      const release = (event) => {
        if (!start) return;
        const [begin, end] = [start, point(event)];
        start = null;
        this.selection.setAttribute("visibility", "hidden");
        const isFlat = this.spec.y.scale === "category";
        if (Math.abs(end.x - begin.x) > 6 && (isFlat || Math.abs(end.y - begin.y) > 6)) {
          this.zoomTo(begin, end);
        }
      };
      this.frame.addEventListener("pointerup", release);
      this.frame.addEventListener("pointercancel", () => {
        start = null;
        this.selection.setAttribute("visibility", "hidden");
      });
      this.frame.addEventListener("pointerleave", () => this.hideTip());
      this.frame.addEventListener("dblclick", () => this.reset());
      const keys = {
        "+": () => this.move(0.7), "=": () => this.move(0.7), "-": () => this.move(1 / 0.7),
        ArrowLeft: () => this.move(1, -0.15), ArrowRight: () => this.move(1, 0.15),
        ArrowUp: () => this.move(1, 0, 0.15), ArrowDown: () => this.move(1, 0, -0.15),
        0: () => this.reset(), Escape: () => this.hideTip(),
      };
      this.frame.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
      });
      const buttons = { in: () => this.move(0.7), out: () => this.move(1 / 0.7), reset: () => this.reset() };
      for (const [name, action] of Object.entries(buttons)) {
        this.figure.querySelector(`button[data-zoom="${name}"]`)?.addEventListener("click", action);
      }
    }
  }

  return { Plot };
})();
