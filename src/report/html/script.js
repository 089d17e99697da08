// Adds to a page that works without it: arrow keys in a matrix, Escape and a click beside to close a cell, copying.
(() => {
  "use strict";
  const open = () => (location.hash ? document.querySelector(".cell:target") : null);
  // Which link opened the cell: a cell may stand in several tables.
  let from = null;
  const close = () => {
    const cell = open();
    const link = cell?.querySelector(".close");
    if (!link) return;
    const back = from?.hash === `#${cell.id}` ? from : document.getElementById(link.hash.slice(1));
    link.click();
    back?.focus({ preventScroll: true });
  };
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") return close();
    const step = steps[event.key];
    const from = document.activeElement?.closest?.(".matrix td, .matrix th");
    if (!step || !from || !document.activeElement.matches(".matrix a")) return;
    const rows = [...from.closest("table").tBodies[0].rows];
    let row = rows.indexOf(from.parentElement);
    let column = from.cellIndex;
    // Holes are passed over.
    for (;;) {
      row += step[0];
      column += step[1];
      const cell = rows[row]?.cells[column];
      if (!cell) return;
      const link = cell.querySelector("a");
      if (link) {
        event.preventDefault();
        link.focus();
        return;
      }
    }
  });

  document.addEventListener("click", (event) => {
    from = event.target.closest('a[href^="#c"]') ?? from;
    const cell = open();
    if (cell && !cell.contains(event.target) && !event.target.closest("a, button, label, input, summary")) close();
  });

  addEventListener("hashchange", () => open()?.focus({ preventScroll: true }));

  if (navigator.clipboard) {
    for (const block of document.querySelectorAll(".command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.querySelector("code").textContent);
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      });
      block.append(button);
    }
  }
})();
