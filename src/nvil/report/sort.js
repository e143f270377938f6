// Tables of the class "sortable": a click on the head of a column sorts by it, and another the other way round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const text = row => row.cells[column].textContent.trim().replaceAll("\u2212", "-").replaceAll(",", "");
      const rows = [...body.rows];
      const whole = rows.every(row => isFinite(text(row)));  // also the values of a sweep's axis
      const numbers = whole || head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const down = before ? before == "ascending" : numbers;  // of numbers, the largest first
      rows.sort((one, other) => {
        let [a, b] = [text(one), text(other)];
        if (!numbers) return (down ? -1 : 1) * a.localeCompare(b, undefined, {numeric: true});
        [a, b] = [parseFloat(a), parseFloat(b)];  // the bound of "-91.2 ± 0.3"
        return isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : down ? b - a : a - b;  // what is not known is last
      });
      heads.forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
