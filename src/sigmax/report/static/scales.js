"use strict";
// Axes: from values to pixels and back, ticks at round values, and numbers as text.

const Scales = (() => {
  const identity = (value) => value;
  const transforms = {
    linear: [identity, identity],
    time: [identity, identity],
    category: [identity, identity],
    log: [Math.log10, (value) => 10 ** value],
  };

  function roundStep(span, count) {
    const rough = span / Math.max(count, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    for (const factor of [1, 2, 5, 10]) {
      if (factor * power >= rough * 0.75) return factor * power;
    }
    return 10 * power;
  }

  function linearTicks(low, high, count) {
    const step = roundStep(high - low, count);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
      ticks.push(i * step);
    }
    return ticks;
  }

  function logTicks(low, high, count) {
    const decades = Math.log10(high / low);
    if (decades < 0.8) return linearTicks(low, high, count);
    const factors = decades > count * 0.7 ? [1] : decades > count * 0.4 ? [1, 3] : [1, 2, 5];
    const every = factors.length === 1 ? Math.max(1, Math.ceil(decades / count)) : 1;
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      if (((e % every) + every) % every) continue;
      for (const factor of factors) {
        const tick = factor * 10 ** e;
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    }
    return ticks;
  }

  const HOUR = 3600, DAY = 24 * HOUR;

  function timeTicks(low, high, count) {
    const rough = (high - low) / Math.max(count, 1);
    const ticks = [];
    if (rough > 20 * DAY) { // months and years have no equal length
      const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200];
      const step = months.find((n) => n * 30.4 * DAY >= rough) || 1200;
      const first = new Date(low * 1000);
      const start = first.getUTCFullYear() * 12 + first.getUTCMonth();
      for (let m = Math.floor(start / step) * step; ; m += step) {
        const tick = Date.UTC(Math.floor(m / 12), m % 12, 1) / 1000;
        if (tick > high) return ticks;
        if (tick >= low) ticks.push(tick);
      }
    }
    const steps = [1, 5, 15, 30, 60, 300, 900, 1800, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
      2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY];
    const step = steps.find((n) => n >= rough) || 28 * DAY;
    for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
    return ticks;
  }

  function timeText(seconds, step) {
    const text = new Date(seconds * 1000).toISOString();
    if (step >= 360 * DAY) return text.slice(0, 4);
    if (step >= 25 * DAY) return text.slice(0, 7);
    if (step >= DAY) return text.slice(0, 10);
    if (step >= 60) return text.slice(5, 16).replace("T", " ");
    return text.slice(11, 19);
  }

  const formats = new Map();
  function format(value, options) {
    const key = JSON.stringify(options);
    if (!formats.has(key)) formats.set(key, new Intl.NumberFormat("en", options));
    return formats.get(key).format(value || 0).replace("-", "\u2212"); // no negative zero
  }

  // A number in full, as the pointer and the tables show it.
  function fullText(value, axis) {
    if (value === null || value === undefined) return "unknown";
    if (axis.scale === "category") return axis.levels[Math.round(value)] ?? "";
    if (axis.scale === "time") {
      return new Date(value * 1000).toISOString().slice(0, 16).replace("T", " ").replace(" 00:00", "");
    }
    if (axis.percent) return format(100 * value, { maximumFractionDigits: 1 }) + " %";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e12)) return value.toExponential(3);
    return format(value, size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
  }

  function tickText(value, step, axis) {
    if (axis.scale === "time") return timeText(value, step);
    if (axis.percent) {
      return format(100 * value, { maximumFractionDigits: step < 0.01 ? 2 : 0 }) + " %";
    }
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(0);
    if (size >= 1e4) return format(value, { notation: "compact", maximumSignificantDigits: 4 });
    if (axis.scale === "log") return format(value, { maximumSignificantDigits: 3 });
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return format(value, { maximumFractionDigits: Math.min(digits, 8) });
  }

  // A scale between values and pixels; `domain` is in transformed values.
  function makeScale(axis, domain, start, end) {
    const [forth, back] = transforms[axis.scale];
    const [low, high] = domain;
    const pixelAt = (transformed) => start + ((transformed - low) / (high - low)) * (end - start);
    return {
      axis,
      domain,
      at: (value) => pixelAt(forth(value)),
      transformedAt: (pixel) => low + ((pixel - start) / (end - start)) * (high - low),
      ticks(count) {
        if (axis.scale === "category") {
          return axis.levels
            .map((text, i) => ({ value: i, text }))
            .filter(({ value }) => value >= low - 1e-9 && value <= high + 1e-9);
        }
        const find = { log: logTicks, time: timeTicks }[axis.scale] || linearTicks;
        const values = find(back(low), back(high), count);
        const step = values.length > 1 ? values[1] - values[0] : back(high) - back(low);
        return values.map((value) => ({ value, text: tickText(value, step, axis) }));
      },
    };
  }

  // The range of an axis, in transformed values, that holds all given values.
  function findDomain(axis, values) {
    if (axis.scale === "category") return [-0.5, Math.max(axis.levels.length, 1) - 0.5];
    const [forth] = transforms[axis.scale];
    const usable = (value) => Number.isFinite(value) && (axis.scale !== "log" || value > 0);
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (!usable(value)) continue;
      const transformed = forth(value);
      low = Math.min(low, transformed);
      high = Math.max(high, transformed);
    }
    if (low > high) [low, high] = [0, 1];
    if (low === high) {
      const pad = axis.scale === "log" ? 0.3 : Math.abs(low) * 0.1 || 1;
      [low, high] = [low - pad, high + pad];
    }
    const pad = 0.04 * (high - low);
    [low, high] = [low - pad, high + pad];
    if (axis.low !== null && usable(axis.low)) low = forth(axis.low);
    if (axis.high !== null && usable(axis.high)) high = forth(axis.high);
    return low < high ? [low, high] : [low, low + 1];
  }

  return { findDomain, fullText, makeScale };
})();
