"use strict";

/* Request a density whenever the form changes; upload a file and offer its predictions. */

const WAIT = 150; // milliseconds after the last keystroke
const target = document.body.dataset.target;
const form = document.getElementById("row");
const svg = document.getElementById("curve");
let timer, request, shown, decimals = 1;

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function cellOf(input) {
  const kind = input.dataset.kind;
  if (kind === "list") {
    if (input.value === "missing") return null;
    if (input.value === "other") return document.getElementById(input.dataset.other).value;
    return input.value.slice("category:".length);
  }
  if (input.value === "") return null;
  return kind === "number" ? Number(input.value) : input.value;
}

/* Cells by column, or null while a number is incomplete. */
function rowOf() {
  const row = Object.create(null);
  for (const input of form.querySelectorAll("[data-column]")) {
    if (input.validity.badInput || input.validity.valueMissing) return null;
    row[input.dataset.column] = cellOf(input);
  }
  return row;
}

function problemText(answer, found) {
  const lines = (found.detail || []).map((one) => {
    const path = one.loc.filter((part) => !["body", "row", "header"].includes(part)).join(" ");
    return path ? `${path}: ${one.msg}` : one.msg;
  });
  return lines.join("; ") || `The server responded with status ${answer.status}.`;
}

async function refresh() {
  for (const input of form.querySelectorAll("[data-other]")) {
    document.getElementById(input.dataset.other).hidden = input.value !== "other";
  }
  const row = rowOf();
  if (row === null) return;
  if (request) request.abort();
  request = new AbortController();
  try {
    const answer = await fetch("/density", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ row }),
      signal: request.signal,
    });
    const found = await answer.json();
    if (answer.ok) show(found);
    else showSummary(problemText(answer, found));
  } catch (error) {
    if (error.name !== "AbortError") showSummary("The server cannot be reached.");
  }
}

function showSummary(text) {
  document.getElementById("summary").textContent = text;
}

/* A number in units of the target, to two digits of the standard deviation. */
function inUnits(value) {
  if (value === null || decimals === null) return shortNumber(value);
  const text = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return value.toLocaleString("en", text).replace("-", "−");
}

function between(interval) {
  if (interval.lower === null || interval.upper === null) return "unbounded";
  return `${inUnits(interval.lower)} to ${inUnits(interval.upper)}`;
}

function show(found) {
  shown = found;
  const [half, most] = found.intervals;
  const digits = found.std > 0 ? Math.max(0, 1 - Math.floor(Math.log10(found.std))) : 100;
  decimals = digits > 6 ? null : digits;
  showSummary(`${target}: ${inUnits(found.median)}, in 9 of 10 cases ${between(most)}`);
  document.getElementById("effects").replaceChildren();
  showNote(found);
  drawCurve(svg, found);
  const numbers = {
    mean: inUnits(found.mean),
    "in half of all cases": between(half),
    "standard deviation": inUnits(found.std),
    "noise (aleatoric)": inUnits(found.aleatoric),
    "lack of data (epistemic)": inUnits(found.epistemic),
  };
  for (const { value, probability } of found.atoms) {
    numbers[`probability of ${shortNumber(value)}`] = `${(100 * probability).toFixed(1)} %`;
  }
  if (found.off_data !== null) numbers["out of distribution (0 to 1)"] = found.off_data.toFixed(2);
  document.getElementById("numbers").replaceChildren(
    ...Object.entries(numbers).map(([name, text]) =>
      element("div", null, element("dt", name), element("dd", text)),
    ),
  );
  showNeighbors(found.neighbors);
}

function showNote(found) {
  const note = document.getElementById("note");
  const parts = [];
  if (found.is_out_of_distribution) {
    const text = "This row is out of distribution, so the prediction falls back to the overall distribution of the target.";
    parts.push(element("p", null, element("strong", text)));
  }
  if (found.notes) parts.push(element("p", `Values to check: ${found.notes}.`));
  note.replaceChildren(...parts);
}

function showNeighbors(neighbors) {
  const table = document.getElementById("neighbors");
  if (!table || neighbors === null) return;
  if (!neighbors.length) {
    const cell = element("td", "No training row is close.");
    table.replaceChildren(element("tbody", null, element("tr", null, cell)));
    return;
  }
  const head = element("tr", null, ...["row", "weight"].map((name) => {
    const cell = element("th", name);
    cell.scope = "col";
    return cell;
  }));
  const rows = neighbors.map((one) => {
    const cells = [String(one.row), `${(100 * one.weight).toFixed(1)} %`];
    return element("tr", null, ...cells.map((text) => element("td", text)));
  });
  table.replaceChildren(element("thead", null, head), element("tbody", null, ...rows));
}

/* The columns whose knowledge changes the standard deviation, on demand. */
async function explain() {
  const effects = document.getElementById("effects"), row = rowOf(), before = shown;
  if (row === null) return;
  effects.textContent = "…";
  const answer = await fetch("/explain", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ row }),
  });
  const found = await answer.json();
  if (shown !== before) return; // of an earlier row
  if (!answer.ok) {
    effects.textContent = problemText(answer, found);
    return;
  }
  const lines = found.effects.filter((one) => one.effect && shown.std > 0
    && Math.abs(one.effect) >= 0.01 * shown.std).slice(0, 5).map((one) => {
    const change = `${one.effect < 0 ? "narrower" : "wider"} by ${inUnits(Math.abs(one.effect))}`;
    return element("li", `Knowing ${one.column} makes this prediction ${change}`);
  });
  const note = "Changes of the standard deviation, compared with an unknown value.";
  const none = element("p", "No single column changes the standard deviation by 1 % or more.");
  effects.replaceChildren(
    ...(lines.length ? [element("ul", null, ...lines), element("p", note)] : [none]),
  );
}

document.getElementById("explain").addEventListener("click", () => {
  explain().catch(() => showSummary("The server cannot be reached."));
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(refresh, WAIT);
});
form.addEventListener("reset", () => setTimeout(refresh, 0));
new ResizeObserver(() => shown && drawCurve(svg, shown)).observe(svg);

/* Read the response to a file in parts, to show the progress. */

const fileForm = document.getElementById("file-form");
let address;

function showStatus(text) {
  document.getElementById("file-status").textContent = text;
}

async function sendFile() {
  const file = document.getElementById("file").files[0];
  const coverage = Number(document.getElementById("coverage").value) / 100;
  const query = new URLSearchParams({ coverage: String(coverage) });
  document.getElementById("file-result").hidden = true;
  showStatus("Uploading and checking the file.");
  const answer = await fetch(`/predict_csv?${query}`, {
    method: "POST",
    headers: { "Content-Type": "text/csv" },
    body: file,
  });
  if (!answer.ok) {
    showStatus(problemText(answer, await answer.json()));
    return;
  }
  const parts = [], reader = answer.body.getReader();
  let lines = -1;
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    parts.push(step.value);
    lines += step.value.reduce((count, byte) => count + (byte === 10 ? 1 : 0), 0);
    showStatus(`${lines.toLocaleString("en")} rows predicted`);
  }
  if (address) URL.revokeObjectURL(address);
  address = URL.createObjectURL(new Blob(parts, { type: "text/csv" }));
  document.getElementById("download").href = address;
  document.getElementById("file-result").hidden = false;
  showStatus(`${lines.toLocaleString("en")} rows predicted; the file is ready`);
}

fileForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = fileForm.querySelector("button");
  button.disabled = true;
  try {
    await sendFile();
  } catch {
    showStatus("The server stopped responding; the result is incomplete and was discarded.");
  } finally {
    button.disabled = false;
  }
});

refresh();
