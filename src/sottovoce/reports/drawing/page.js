"use strict";
// Values behind figures: each panel holds them in data-values, with the ends and the scale of its axes.
(() => {
  const SVG = "http://www.w3.org/2000/svg", NEAR = 40, MOST = 8;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  let shown = null; // the panel whose values are shown

  const along = (axis, value, from, to) => {
    const [low, high] = axis.log ? axis.ends.map(Math.log) : axis.ends;
    return from + (((axis.log ? Math.log(value) : value) - low) / (high - low)) * (to - from);
  };
  const text = (axis, value) => axis.names && axis.names[String(value)]
    || (Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4))));

  const points = (values) => values.curves.flatMap((curve, row) => curve.y.map((y, place) => ({
    curve, row, place, y, x: curve.flat ? null : curve.x[place],
    name: curve.names.length > 1 ? curve.names[place] : curve.names[0],
    px: curve.flat ? null : along(values.x, curve.x[place], values.box[0], values.box[2]),
    py: along(values.y, y, values.box[3], values.box[1]),
  })));

  const line = (panel, point, withX) => {
    const { x, y } = panel.values, row = document.createElement("div"), mark = document.createElement("span");
    mark.className = "dot";
    mark.style.background = point.curve.colour;
    const said = [];
    if (withX && point.curve.shows.includes("x")) said.push(`${x.label}: ${text(x, point.x)}`);
    if (point.curve.shows.includes("y") && !(y.names && point.name === text(y, point.y))) {
      said.push(withX ? `${y.label}: ${text(y, point.y)}` : text(y, point.y));
    }
    row.append(mark, [point.name, ...said].filter(Boolean).join(withX ? " · " : ": "));
    return row;
  };

  const show = (panel, point) => {
    const same = panel.points.filter((one) => one.x !== null && one.x === point.x && one.curve.shows === "xy");
    const many = point.curve.shows === "xy" && !panel.values.y.names && same.length > 1 && same.length <= MOST;
    const head = document.createElement("div");
    head.className = "head";
    head.textContent = many ? `${panel.values.x.label}: ${text(panel.values.x, point.x)} · ${panel.values.y.label}` : "";
    tip.replaceChildren(...(many ? [head] : []), ...(many ? same : [point]).map((one) => line(panel, one, !many)));
    tip.hidden = false;
    const svg = panel.element.querySelector("svg"), box = panel.values.box;
    panel.mark.setAttribute("cx", point.px === null ? box[2] : point.px);
    panel.mark.setAttribute("cy", point.py);
    panel.mark.setAttribute("stroke", point.curve.colour);
    if (!panel.mark.isConnected) svg.append(panel.mark);
    if (shown && shown !== panel) shown.mark.remove();
    shown = panel;
    panel.current = point;
    const at = new DOMPoint(+panel.mark.getAttribute("cx"), point.py).matrixTransform(svg.getScreenCTM());
    const width = tip.offsetWidth, height = tip.offsetHeight, room = document.documentElement.clientWidth;
    const left = at.x + 14 + width > room - 4 ? at.x - 14 - width : at.x + 14;
    tip.style.left = `${Math.max(4, Math.min(left, room - width - 4)) + scrollX}px`;
    tip.style.top = `${Math.max(4, at.y - height - 10) + scrollY}px`;
  };
  const hide = () => {
    if (shown) shown.mark.remove();
    shown = null;
    tip.hidden = true;
  };

  const nearest = (panel, event) => {
    const matrix = panel.element.querySelector("svg").getScreenCTM().inverse();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    let best = null, least = NEAR;
    for (const point of panel.points) {
      const away = Math.hypot(point.px === null ? 4 : point.px - at.x, point.py - at.y);
      if (away < least) [best, least] = [point, away];
    }
    return best;
  };
  const point = (panel) => (event) => {
    const found = nearest(panel, event);
    if (found) show(panel, found); else if (shown === panel) hide();
  };

  // Arrows: along a curve, and to another curve at the same place.
  const move = (panel, key) => {
    const all = panel.points, now = panel.current || all[0];
    if (!panel.current) return now;
    const own = all.filter((one) => one.row === now.row), rows = [...new Set(all.map((one) => one.row))];
    const place = own.indexOf(now), row = rows.indexOf(now.row);
    if (key === "ArrowLeft") return own[Math.max(0, place - 1)];
    if (key === "ArrowRight") return own[Math.min(own.length - 1, place + 1)];
    if (key === "Home") return own[0];
    if (key === "End") return own[own.length - 1];
    const next = rows[(row + (key === "ArrowUp" ? -1 : 1) + rows.length) % rows.length];
    const others = all.filter((one) => one.row === next);
    return others.reduce((best, one) => (Math.abs(one.px - now.px) < Math.abs(best.px - now.px) ? one : best));
  };
  const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

  for (const element of document.querySelectorAll("[data-values]")) {
    const values = JSON.parse(element.dataset.values), mark = document.createElementNS(SVG, "circle");
    mark.setAttribute("r", "4.5");
    mark.setAttribute("class", "at");
    const panel = { element, values, mark, points: points(values), current: null };
    element.tabIndex = 0;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", `${values.y.label}: arrow keys show values`);
    element.addEventListener("pointermove", point(panel));
    element.addEventListener("pointerdown", point(panel));
    element.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    element.addEventListener("blur", hide);
    element.addEventListener("keydown", (event) => {
      if (KEYS.includes(event.key)) {
        event.preventDefault();
        show(panel, move(panel, event.key));
      }
    });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("pointerdown", (event) => { if (!event.target.closest("[data-values]")) hide(); });
  addEventListener("resize", hide);

  // Paper has no folds.
  const folds = () => [...document.querySelectorAll("details")];
  let closed = [];
  addEventListener("beforeprint", () => {
    hide();
    closed = folds().filter((one) => !one.open);
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.splice(0).forEach((one) => { one.open = false; }));

  // The page of a training that goes on reloads itself, and keeps its place and its folds.
  const key = (fold) => {
    const section = fold.closest("[id]"), words = fold.querySelector("summary").textContent.replace(/[\d.,]+/g, "");
    return `${section ? section.id : ""}/${words}`;
  };
  const keyed = () => {
    const seen = {};
    return folds().map((fold) => [`${key(fold)}/${seen[key(fold)] = (seen[key(fold)] || 0) + 1}`, fold]);
  };
  const place = () => {
    const sections = [...document.querySelectorAll("section")].filter((one) => one.getBoundingClientRect().top <= 1);
    const last = sections[sections.length - 1];
    return last ? [last.id, last.getBoundingClientRect().top] : ["", -scrollY];
  };
  const restore = ({ open, at }) => {
    keyed().forEach(([name, fold]) => { if (name in open) fold.open = open[name]; });
    const section = document.getElementById(at[0]);
    scrollTo(scrollX, section ? section.getBoundingClientRect().top + scrollY - at[1] : -at[1]);
  };
  const every = Number(document.body.dataset.reload);
  if (history.state && history.state.follow) restore(history.state.follow);
  if (every > 0) {
    history.scrollRestoration = "manual";
    const again = () => {
      if (document.hidden || shown || getSelection().type === "Range") return; // somebody reads, or nobody looks
      const open = Object.fromEntries(keyed().map(([name, fold]) => [name, fold.open]));
      history.replaceState({ follow: { open, at: place() } }, "");
      location.reload();
    };
    setInterval(again, 1000 * every);
  } else if (history.state && history.state.follow) { // the training has ended
    history.scrollRestoration = "auto";
    history.replaceState(null, "");
  }
})();
