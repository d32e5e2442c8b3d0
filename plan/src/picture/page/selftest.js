// What tests of the page call: `#selftest` clicks through it once it is up and writes the outcome into the document;
// `antiphon.measure()` pans and zooms and counts frames.

const antiphon = window.antiphon = { view, model, facts };

// Pans and zooms for some seconds, a step a frame. Frames a second, and the milliseconds of the slowest.
antiphon.measure = (seconds = 3) => new Promise((resolve) => {
  const began = performance.now();
  let frames = 0, last = began, worst = 0;
  const turn = (now) => {
    worst = Math.max(worst, now - last);
    last = now;
    if (now - began > seconds * 1000) {
      resolve({ frames, seconds: (now - began) / 1000, fps: (frames * 1000) / (now - began), worst });
      return;
    }
    frames++;
    antiphon.sweep(frames);
    draw();
    requestAnimationFrame(turn);
  };
  requestAnimationFrame(turn);
});

// One step of a way through the picture: in and out around a point that wanders.
antiphon.sweep = (number) => {
  const phase = number / 40;
  zoom(Math.sin(phase) > 0 ? 1.06 : 1 / 1.06, middle() * (1 + 0.4 * Math.sin(phase / 3)));
  panBy(8 * Math.sin(phase / 2), 12 * Math.cos(phase / 2));
  view.hover = hit(middle(), view.height / 2);
};

// Milliseconds of each of some frames, the canvas's own work included.
antiphon.frames = (count) => {
  const times = [];
  for (let i = 0; i < count; i++) {
    const began = performance.now();
    antiphon.sweep(i);
    draw();
    ctx.getImageData(view.width >> 1, view.height >> 1, 1, 1);
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b);
};

function selftest() {
  const outcome = [], check = (name, holds, saw) => outcome.push([name, Boolean(holds), saw === undefined ? "" : String(saw)]);
  const fire = (type, x, y, more) => {
    const box = canvas.getBoundingClientRect();
    const kind = type === "wheel" ? WheelEvent : type === "dblclick" ? MouseEvent : PointerEvent;
    canvas.dispatchEvent(new kind(type, { bubbles: true, cancelable: true, clientX: box.left + x, clientY: box.top + y, button: 0, pointerId: 1, ...more }));
  };
  const press = (key, target = canvas) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const details = () => byId("details").textContent;
  const centre = (span) => [(xOf(model.start[span]) + xOf(model.end[span])) / 2, yOf(model.spanLane[span]) + view.lane / 2];

  check("the head names the plan", byId("name").textContent === facts.name, byId("name").textContent);
  check("every lane is counted", model.lanes.length === data.lanes.length && model.spanCount > 0, model.spanCount);
  check("everything fits at first", xOf(0) >= GUTTER - 1 && xOf(wholeTime) <= view.width + 1, `${xOf(0)} ${xOf(wholeTime)}`);

  const linked = model.arrowCount ? data.arrows[1] : 0;
  select(linked);
  check("a selected operation is in sight and large", xOf(model.end[linked]) - xOf(model.start[linked]) >= 50 || model.end[linked] === model.start[linked], view.scale);
  press("Escape");
  check("escape lets go", view.selected === -1 && details().startsWith("Click"), details());
  const [x, y] = centre(linked);
  fire("pointermove", x, y);
  check("hovering finds the operation", view.hover === linked, `${view.hover} for ${linked}`);
  check("the tip tells the place", !byId("tip").hidden && byId("tip").textContent.includes(placeOf(model.spanOp[linked])), byId("tip").textContent);
  fire("pointerdown", x, y);
  fire("pointerup", x, y);
  check("a click keeps it", view.selected === linked && details().includes(placeOf(model.spanOp[linked])), details());
  if (model.arrowCount) {
    press("[");
    check("bracket goes to the cause", Array.from(model.inbound(linked)).includes(view.selected), view.selected);
    check("the cause says whom it lets go on", details().includes("lets go on"), details());
  }
  const before = [view.scale, view.from];
  fire("wheel", view.width / 2, view.height / 2, { deltaY: -240, ctrlKey: true });
  check("the wheel zooms", view.scale > before[0], view.scale);
  const held = [view.from, xOf(view.from)];
  fire("pointerdown", view.width / 2, view.height / 2);
  fire("pointermove", view.width / 2 - 80, view.height / 2);
  fire("pointerup", view.width / 2 - 80, view.height / 2);
  check("dragging pans", view.from > held[0], view.from - held[0]);
  press("f");
  check("f fits", Math.abs(view.scale - fitScale()) < fitScale() * 1e-6 && view.from === 0, view.scale);

  const name = kindOf(model.spanOp[linked]);
  byId("search").value = name;
  byId("search").dispatchEvent(new Event("input", { bubbles: true }));
  const met = view.matches ? view.matches.reduce((a, b) => a + b, 0) : -1;
  let wanted = 0;
  for (let op = 0; op < model.opCount; op++) if (kindOf(op) === name) wanted++;
  check("the filter finds an operation by name", met === wanted && byId("matches").textContent.startsWith(wanted.toLocaleString("en")), `${met} of ${wanted}`);
  byId("search").value = "rank 0";
  byId("search").dispatchEvent(new Event("input", { bubbles: true }));
  const own = model.lanes.filter((lane) => lane.rank === 0).reduce((sum, lane) => sum + lane.ops, 0);
  check("the filter finds a rank", view.matches.reduce((a, b) => a + b, 0) === own, own);
  byId("search").value = "";
  byId("search").dispatchEvent(new Event("input", { bubbles: true }));

  const toggle = document.querySelector("#legend button"), family = Number(toggle.dataset.family);
  toggle.click();
  check("the legend hides a family", view.hidden[family] === 1 && toggle.getAttribute("aria-pressed") === "false");
  toggle.click();
  check("and shows it again", view.hidden[family] === 0);
  if (data.critical.length) {
    byId("critical").click();
    check("the critical path shows", view.showCritical && byId("critical").getAttribute("aria-pressed") === "true");
    byId("critical").click();
  }
  faults.forEach((fault, f) => {
    document.querySelectorAll("#findings .fault > .title")[f].click();
    const marked = fault.marks.map(([op, iteration]) => spanOf(op, iteration)).filter((span) => span >= 0);
    check(`fault ${f + 1} is shown in place`, view.fault === f && (!marked.length || marked.includes(view.selected)), view.selected);
    const step = document.querySelectorAll("#findings .fault")[f].querySelector("ol .link");
    if (step) {
      const op = fault.steps.find(([, at]) => at !== null)[1];
      step.click();
      check(`a step of fault ${f + 1} leads to its operation`, details().includes(placeOf(op)), details());
    }
    press("Escape");
  });
  byId("theme").click();
  check("the other theme", ["light", "dark"].includes(document.documentElement.dataset.theme));
  byId("theme").click();
  fit();
  const times = antiphon.frames(40);
  fit();
  draw();
  const result = element("pre", { id: "selftest" }, JSON.stringify({ passed: outcome.every((o) => o[1]), outcome, frame: times[times.length >> 1], slowest: times[times.length - 1] }));
  document.body.append(result);
  document.title = outcome.every((o) => o[1]) ? "selftest passed" : "selftest failed";
}
if (location.hash === "#selftest") selftest();
