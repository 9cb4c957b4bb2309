"use strict";
// Reads each client's budget from its slider and shows the nearest combination that was trained.
(() => {
  const data = JSON.parse(document.getElementById("offers").textContent);
  const sliders = data.clients.map((_, k) => document.getElementById("slider-" + k));
  const chosen = data.clients.map((_, k) => document.getElementById("chosen-" + k));
  const nearest = document.getElementById("nearest");
  const show = () => {
    const wanted = sliders.map((slider) => Number(slider.value));
    let best = 0, least = Infinity;
    data.offers.forEach((offer, i) => {
      const steps = offer.levels.reduce((sum, level, k) => sum + Math.abs(level - wanted[k]), 0);
      if (steps < least) { least = steps; best = i; }
    });
    const offer = data.offers[best];
    data.clients.forEach((_, k) => {
      const budget = data.budgets[wanted[k]];
      chosen[k].textContent = budget;
      sliders[k].setAttribute("aria-valuetext", "budget " + budget);
      const row = document.getElementById("figures-" + k).cells;
      row[1].textContent = data.budgets[offer.levels[k]];
      offer.views[k].forEach((figure, column) => { row[column + 2].textContent = figure; });
    });
    nearest.textContent = "No. " + (best + 1) + (least === 0
      ? ": exactly this combination was trained."
      : ": the nearest trained combination, " + least + (least === 1 ? " step" : " steps") + " away.");
  };
  sliders.forEach((slider) => slider.addEventListener("input", show));
  document.getElementById("try").hidden = false;
  show();
})();
