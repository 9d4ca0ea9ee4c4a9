// The page: charts, sortable and filterable tables with details, and the colour scheme.

(() => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const plots = new Map();
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    plots.set(figure.id, new Charts.Plot(figure, specs[figure.dataset.chart]));
  }

  for (const select of document.querySelectorAll("select[data-figure]")) {
    const figure = document.getElementById(select.dataset.figure);
    const show = () => {
      figure.dataset.chart = select.value;
      figure.querySelector(".figure-title").textContent = specs[select.value].title;
      plots.get(figure.id).show(specs[select.value]);
    };
    select.addEventListener("change", show);
    if (specs[select.value] && figure.dataset.chart !== select.value) show(); // kept by the browser
  }

  // A row and its details are moved, shown and hidden together.
  function pairs(body) {
    const found = [];
    for (const row of body.rows) {
      if (row.classList.contains("detail")) found[found.length - 1].push(row);
      else found.push([row]);
    }
    return found;
  }

  function sortBy(table, column, direction) {
    const body = table.tBodies[0];
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    };
    const compare = ([one], [other]) => {
      const [a, b] = [key(one), key(other)];
      if (typeof a === "number" && typeof b === "number") return direction * (a - b);
      return direction * String(a).localeCompare(String(b), "en", { numeric: true });
    };
    body.append(...pairs(body).sort(compare).flat());
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button")?.addEventListener("click", () => {
        const wasDown = head.getAttribute("aria-sort") === "descending";
        const wasUp = head.getAttribute("aria-sort") === "ascending";
        const isUp = wasDown || (!wasUp && head.dataset.number === undefined);
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
        sortBy(table, column, isUp ? 1 : -1);
      });
    });
  }

  function closeDetail(row, detail, isOpen) {
    detail.classList.toggle("closed", !isOpen);
    const button = row.querySelector("button.opens");
    button.setAttribute("aria-expanded", String(isOpen));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const [row, detail] of pairs(table.tBodies[0])) {
      if (!detail) continue;
      closeDetail(row, detail, false);
      row.querySelector("button.opens").addEventListener("click", () => {
        closeDetail(row, detail, detail.classList.contains("closed"));
      });
    }
  }

  for (const input of document.querySelectorAll("input[data-table]")) {
    const table = document.getElementById(input.dataset.table);
    const status = document.getElementById(`${input.dataset.table}-count`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      const all = pairs(table.tBodies[0]);
      for (const rows of all) {
        const text = rows[0].textContent.toLowerCase();
        const isShown = words.every((word) => text.includes(word));
        shown += isShown;
        for (const row of rows) row.hidden = !isShown;
      }
      status.textContent = words.length ? `${shown} of ${all.length} rows` : "";
    });
  }

  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const isDark = () => root.dataset.theme === "dark"
    || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { theme.textContent = isDark() ? "Light colours" : "Dark colours"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  theme.hidden = false;
  name();

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.printed")) details.open = true;
  });
  root.dataset.ready = "";
})();
