// Runs in a page of its own that holds the report in a frame: the report itself runs no script.
const WIDTH = 0; // replaced
const area = (a, b) =>
  Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
  Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
const shown = (r) => r.width > 1 && r.height > 1;

function overlaps(elements, what, problems) {
  const boxes = [...elements].map((e) => [e, e.getBoundingClientRect()]).filter((p) => shown(p[1]));
  boxes.forEach(([a, ra], i) =>
    boxes.slice(i + 1).forEach(([b, rb]) => {
      if (area(ra, rb) > 2) problems.push(`${what} overlap: "${a.textContent}" and "${b.textContent}"`);
    }));
}

function measure(doc) {
  const problems = [];
  const page = doc.documentElement;
  if (page.scrollWidth > WIDTH) problems.push(`the page is ${page.scrollWidth} wide`);
  for (const svg of doc.querySelectorAll("svg.picture")) overlaps(svg.querySelectorAll("text"), "texts", problems);
  for (const row of doc.querySelectorAll(".strips tr")) overlaps(row.children, "cells", problems);
  overlaps(doc.querySelectorAll("main > section, header"), "sections", problems);
  for (const text of doc.querySelectorAll("svg.picture text")) {
    const box = text.getBoundingClientRect();
    if (shown(box) && (box.left < -1 || box.right > WIDTH + 1)) problems.push(`text leaves the page: "${text.textContent}"`);
  }
  for (const e of doc.querySelectorAll("h1, h2, h3, p, li, .strips th, .strips td, .pairs td, .pairs th"))
    if (e.clientWidth > 1 && !e.closest(".hidden") && e.scrollWidth > e.clientWidth + 1)
      problems.push(`cut: "${e.textContent.trim().slice(0, 60)}"`);
  return problems;
}

const frame = document.getElementById("frame");
frame.addEventListener("load", () => {
  const doc = frame.contentDocument;
  const colour = (e, what) => doc.defaultView.getComputedStyle(e)[what];
  document.getElementById("found").textContent = "FOUND" + JSON.stringify({
    problems: measure(doc),
    scripts: doc.scripts.length,
    headline: doc.querySelector("h1").getBoundingClientRect(),
    verdicts: [...doc.querySelectorAll(".strips td.verdict")].map((e) => e.getBoundingClientRect()),
    colours: {
      ink: colour(doc.body, "color"),
      soft: colour(doc.querySelector("caption"), "color"),
      paper: colour(doc.body, "backgroundColor"),
    },
  }) + "END";
});
