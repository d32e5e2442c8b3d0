// The page comes up.

readTheme();
resize();
fillHead();
fillLegend();
fillFindings();
fillPath();
fillLinks();
fillRanks();
showDetails(-1, -1);
byId("critical").hidden = !data.critical.length;
resize();
fit();
draw();
new ResizeObserver(() => {
  const whole = Math.abs(view.scale - fitScale()) < view.scale * 1e-6 && view.top === 0;
  resize();
  if (whole) fit(); else clampView();
  draw();
}).observe(canvas);
