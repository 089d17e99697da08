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
    // A large table is cut into several below each other.
    const rows = [...from.closest(".scroll").querySelectorAll("tbody > tr")];
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

  // Commands are copied by a button; those of a cell get theirs when it is opened.
  const copied = (block) => {
    if (!navigator.clipboard || block.querySelector("button")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  };
  const opened = () => {
    const cell = open();
    if (!cell) return;
    cell.querySelectorAll(".command").forEach(copied);
    cell.focus({ preventScroll: true });
  };
  document.querySelectorAll("main .command").forEach(copied);
  addEventListener("hashchange", opened);
  addEventListener("load", opened);
})();
