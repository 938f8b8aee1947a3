"use strict";
(() => {
  const key = (row, index) => {
    const cell = row.cells[index];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sort = (button) => {
    const header = button.closest("th");
    const table = header.closest("table");
    const upward = header.getAttribute("aria-sort") !== "ascending";
    const known = (value) => value !== "–";
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, header.cellIndex), row]);
    rows.sort(([a], [b]) => known(b) - known(a) || (upward ? compare(a, b) : compare(b, a)));
    for (const other of header.parentNode.cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", upward ? "ascending" : "descending");
    table.tBodies[0].append(...rows.map(([, row]) => row));
    document.getElementById("said").textContent =
      `Sorted by ${button.textContent.trim()}, ${upward ? "ascending" : "descending"}.`;
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("thead button");
    if (button) sort(button);
  });
})();
