"use strict";
// Draws each figure when it comes near the window: all of a large study at once would take seconds.
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chooser = document.getElementById("target");
  const drawn = new Map();

  const target = () => (chooser ? Number(chooser.value) : 0);

  function rows(columns) {
    const names = Object.keys(columns);
    const count = names.length ? columns[names[0]].length : 0;
    return Array.from({ length: count }, (_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
  }

  // A specification in which each "@name" is a colour of the theme, or what the reader's score is.
  function filled(figure, theme) {
    const values = { ...theme.colours, ...report.targets[target()] };
    const text = JSON.stringify(figure.spec);
    return JSON.parse(text.replace(/"@(\w+)"/g, (all, name) => (name in values ? JSON.stringify(values[name]) : all)));
  }

  async function draw(element) {
    const figure = report.figures[element.dataset.figure];
    const place = element.querySelector(".drawing");
    const theme = report.themes[dark.matches ? "dark" : "light"];
    const spec = filled(figure, theme);
    const sets = { ...report.shared, ...figure.data };
    const before = drawn.get(element);
    const made = await vegaEmbed(place, { ...spec, width: "container", autosize: { type: "fit-x", contains: "padding" } }, {
      renderer: "canvas",
      config: theme.config,
      tooltip: { theme: dark.matches ? "dark" : "light" },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: element.dataset.figure,
      patch: (compiled) => {
        for (const set of compiled.data) if (set.name in sets) set.values = rows(sets[set.name]);
        return compiled;
      },
    });
    if (before) before.finalize();
    if (brushes.delete(element)) choose();
    for (const param of figure.spec.params || []) made.view.signal(param.name, chosen).run();
    if ((figure.spec.layer || []).some((layer) => (layer.params || []).some((param) => param.name === "brush")))
      made.view.addSignalListener("brush", (_, ranges) => {
        const named = Object.entries(ranges);
        if (named.length) brushes.set(element, named);
        else brushes.delete(element);
        clearTimeout(waiting); // drawing thousands of marks at each step of the pointer takes seconds
        waiting = setTimeout(choose, 60);
      });
    drawn.set(element, made);
    element.view = made.view;
    element.dataset.drawn = "";
  }

  // The ranges that the reader has drawn, by figure. A configuration in all of them is chosen: the
  // others fade in every figure and leave the tables.
  const brushes = new Map();
  let chosen = null, waiting = 0;

  function inside(value, range) {
    if (value === null || range.length !== 2 || typeof range[0] !== "number") return range.includes(value);
    return Math.min(...range) <= value && value <= Math.max(...range);
  }

  function choose() {
    const all = report.shared.configurations;
    const ranges = [...brushes.values()].flat();
    const ids = (all.id || []).filter((_, row) => ranges.every(([name, range]) => inside(all[name][row], range)));
    chosen = ranges.length ? Object.fromEntries(ids.map((id) => [id, true])) : null;
    for (const [element, { view }] of drawn)
      for (const param of report.figures[element.dataset.figure].spec.params || []) view.signal(param.name, chosen).runAsync();
    for (const row of document.querySelectorAll("tr[data-id]"))
      row.hidden = chosen ? !(row.dataset.id in chosen) : row.classList.contains("spare");
    const bar = document.getElementById("chosen");
    bar.hidden = !chosen;
    bar.firstElementChild.textContent = `${ids.length} of ${(all.id || []).length} configurations chosen`;
  }

  document.querySelector("#chosen button").addEventListener("click", () => [...brushes.keys()].forEach(queue));

  // One at a time, so that the page answers between two of them.
  let turn = Promise.resolve();
  function queue(element) {
    turn = turn.then(() => draw(element)).then(() => new Promise((rest) => setTimeout(rest)));
  }

  const figures = [...document.querySelectorAll("figure[data-figure]")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      queue(entry.target);
    }
  }, { rootMargin: "300px" });
  figures.forEach((figure) => near.observe(figure));

  function again(which) {
    for (const figure of figures) {
      if (drawn.has(figure) && which(report.figures[figure.dataset.figure])) {
        delete figure.dataset.drawn;
        near.observe(figure);
      }
    }
  }
  dark.addEventListener("change", () => again(() => true));
  if (chooser) chooser.addEventListener("change", () => again((figure) => figure.by_target));
  addEventListener("beforeprint", () => figures.filter((f) => !drawn.has(f)).forEach(draw));

  // A click on a heading sorts by it, the largest number first.
  for (const heading of document.querySelectorAll("th")) {
    heading.addEventListener("click", () => {
      const body = heading.closest("table").tBodies[0];
      const column = heading.cellIndex;
      const number = heading.classList.contains("number");
      const down = heading.getAttribute("aria-sort") === (number ? "ascending" : "descending") || (!heading.hasAttribute("aria-sort") && number);
      const value = (row) => {
        const cell = row.cells[column];
        return number ? parseFloat(cell.dataset.sort ?? "NaN") : cell.textContent.trim();
      };
      const sorted = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (number && (Number.isNaN(x) || Number.isNaN(y))) return Number.isNaN(x) - Number.isNaN(y);
        const order = number ? x - y : x.localeCompare(y, undefined, { numeric: true });
        return down ? -order : order;
      });
      for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...sorted);
    });
  }
})();
