"use strict";
// Draws the charts from the data in the page. The numbers, their order and their
// titles come with the data.
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const marks = ["circle", "diamond", "triangle", "rect", "inverse", "circle", "diamond", "rect", "triangle", "inverse", "circle", "diamond", "rect", "triangle", "inverse", "circle"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colours = () => ({ ink: css("--ink"), soft: css("--soft"), line: css("--line"), page: css("--page"), wash: css("--wash") });
  const escape = (text) => echarts.format.encodeHTML(String(text));
  const number = (v) => v === null ? "missing" : Math.abs(v) >= 1000 ? v.toFixed(0) : String(Number(v.toPrecision(4)));
  // The numbers of an axis: 200 M for 200000000, so that they leave the room to the chart.
  const tick = (v) => Math.abs(v) >= 1e9 ? `${number(v / 1e9)} G` : Math.abs(v) >= 1e6 ? `${number(v / 1e6)} M` : Math.abs(v) >= 1e4 ? `${number(v / 1e3)} k` : number(v);

  const family = getComputedStyle(document.body).fontFamily;
  const axisText = (c) => ({ color: c.soft, fontSize: 12, fontFamily: family });
  const valueAxis = (chart, c) => ({
    type: "value",
    axisLabel: { ...axisText(c), hideOverlap: true, formatter: tick }, axisLine: { show: false }, axisTick: { show: false },
    splitLine: { lineStyle: { color: c.line } },
  });
  const categoryAxis = (chart, c, rotate = 0) => ({
    type: "category", data: shortened(chart.categories),
    axisLabel: {
      ...axisText(c), interval: 0, hideOverlap: rotate === 0, rotate,
      // Long names have several lines.
      ...(rotate === 0 && { width: Math.max(60, (document.getElementById(chart.id).clientWidth - 60) / chart.categories.length - 10), overflow: "break", lineHeight: 15 }),
    }, axisTick: { show: false },
    axisLine: { lineStyle: { color: c.soft } },
  });

  // Categories below each other. A name takes half of the width, and as many lines as it needs there.
  const nameLines = (chart) => {
    const longest = Math.max(...shortened(chart.categories).map((name) => name.length));
    return Math.max(1, Math.ceil(7 * longest / Math.max(60, document.getElementById(chart.id).clientWidth / 2)));
  };
  const rowAxis = (chart, c) => ({
    type: "category", inverse: true, data: shortened(chart.categories),
    axisLabel: { ...axisText(c), interval: 0, width: document.getElementById(chart.id).clientWidth / 2, overflow: "break", lineHeight: 14 },
    axisTick: { show: false }, axisLine: { lineStyle: { color: c.soft } },
  });

  // The names without the prefix that all of them share: "cpu" for sysbench-cpu.
  function shortened(names) {
    const prefix = names[0].slice(0, names[0].indexOf("-") + 1);
    return names.length > 1 && names.every((name) => name.startsWith(prefix)) ? names.map((name) => name.slice(prefix.length)) : names;
  }

  // Rotates the names of categories that do not fit next to each other.
  function slant(chart) {
    const longest = Math.max(...shortened(chart.categories).map((name) => name.length));
    const room = document.getElementById(chart.id).clientWidth / chart.categories.length;
    return room > 0 && 7 * longest + 6 > room ? 35 : 0;
  }
  const common = (chart, c) => ({
    animation: false,
    textStyle: { fontFamily: family },
    legend: { show: chart.series.length > 1, type: "scroll", bottom: 0, left: 0, itemWidth: 12, itemHeight: 12, itemGap: 18, textStyle: axisText(c), icon: "rect" },
    grid: { left: 4, right: 24, top: 12, bottom: chart.series.length > 1 ? 34 : 4, containLabel: true },
    tooltip: {
      trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: c.line, opacity: 0.4 } }, confine: true,
      backgroundColor: c.page, borderColor: c.line, textStyle: { color: c.ink, fontSize: 12 },
      formatter: (items) => tooltip(chart, items),
    },
  });

  function tooltip(chart, items) {
    const at = items[0].dataIndex;
    const rows = chart.series.map((s, i) => {
      const interval = s.low && s.low[at] !== null ? ` [${number(s.low[at])}, ${number(s.high[at])}]` : "";
      const dot = `<span style="color:${chart.slots ? css(`--s${chart.slots[at]}`) : colourOf(chart, s)}">■</span>`;
      return `${dot} ${escape(s.name)}: <b>${number(s.values[at])}</b>${interval}`;
    });
    return [`<b>${escape(chart.categories[at])}</b>`, ...rows].join("<br>");
  }

  const colourOf = (chart, s) => css(chart.kind === "stack" ? `--p${s.slot % 4}` : `--s${s.slot}`);

  // The axis must hold the ends of the intervals too.
  function extent(chart) {
    const values = chart.series.flatMap((s) => [...s.values, ...s.low, ...s.high]).filter((v) => v !== null);
    return [Math.min(...values), Math.max(...values)];
  }

  // An axis in round steps that holds both ends.
  function around(low, high) {
    const rough = (high - low) / 5 || 0.1, power = 10 ** Math.floor(Math.log10(rough));
    const interval = power * [1, 2, 5, 10].find((f) => f * power >= rough);
    return { min: Math.floor(low / interval) * interval, max: Math.ceil(high / interval) * interval, interval };
  }

  // A logarithmic axis from and to 1, 2 or 5 times a power of ten that holds both ends. Its
  // marks are these numbers, or powers of ten where there would be too many.
  function decades(chart, low, high, c) {
    const steps = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const f of [1, 2, 5]) steps.push(Number(`${f}e${power}`));
    }
    const first = steps.findLastIndex((v) => v <= low), last = steps.findIndex((v) => v >= high);
    const inside = steps.slice(Math.max(0, first), last < 0 ? undefined : last + 1);
    const marks = inside.length <= document.getElementById(chart.id).clientHeight / 34 ? inside : inside.filter((v) => Math.log10(v) % 1 === 0);
    return {
      type: "log", min: inside[0], max: inside.at(-1),
      axisLabel: { ...axisText(c), formatter: (v) => String(Number(v.toPrecision(3))), customValues: marks },
      axisTick: { show: false, customValues: marks }, splitLine: { lineStyle: { color: c.line } },
    };
  }

  // One mark of a series in its own lane within the category: a bar or a point,
  // and a whisker over the interval.
  function mark(chart, lane, seriesColour, c) {
    const lanes = chart.series.length;
    return (params, api) => {
      const value = api.value(1);
      if (Number.isNaN(value)) return undefined;
      const slot = chart.slots ? chart.slots[api.value(0)] : chart.series[lane].slot;
      const symbol = marks[slot % marks.length];
      const colour = chart.slots ? css(`--s${slot}`) : seriesColour;
      const band = api.size([1, 0])[0];
      const width = Math.min(44, band * 0.72 / lanes);
      const [middle, y] = api.coord([api.value(0), value]);
      const x = middle + (lane - (lanes - 1) / 2) * width;
      const children = [];
      if (chart.kind !== "ratios") {
        const base = api.coord([api.value(0), 0])[1];
        const w = Math.max(2, width * 0.84);
        children.push({ type: "rect", shape: { x: x - w / 2, y: Math.min(y, base), width: w, height: Math.abs(base - y) }, style: { fill: colour } });
      }
      children.push(...whisker(api, x, width, chart.kind !== "ratios" ? c.ink : colour));
      if (chart.kind === "ratios") children.push(point(symbol, x, y, colour, c.page));
      return { type: "group", children };
    };
  }

  function whisker(api, x, width, stroke) {
    const low = api.value(2), high = api.value(3);
    if (Number.isNaN(low) || Number.isNaN(high)) return [];
    const top = api.coord([api.value(0), high])[1], bottom = api.coord([api.value(0), low])[1];
    const cap = Math.min(5, width / 4);
    const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke, lineWidth: 1.5 } });
    return [line(x, top, x, bottom), line(x - cap, top, x + cap, top), line(x - cap, bottom, x + cap, bottom)];
  }

  function point(symbol, x, y, fill, stroke) {
    const style = { fill, stroke, lineWidth: 1.5 }, r = 5.5;
    const polygon = (points) => ({ type: "polygon", shape: { points: points.map(([dx, dy]) => [x + dx * r, y + dy * r]) }, style });
    switch (symbol) {
      case "diamond": return polygon([[0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]]);
      case "triangle": return polygon([[0, -1.15], [1.15, 0.95], [-1.15, 0.95]]);
      case "inverse": return polygon([[0, 1.15], [1.15, -0.95], [-1.15, -0.95]]);
      case "rect": return polygon([[-0.95, -0.95], [0.95, -0.95], [0.95, 0.95], [-0.95, 0.95]]);
    }
    return { type: "circle", shape: { cx: x, cy: y, r }, style };
  }

  // The legend shows the marks of the points; ECharts turns only some of them.
  const icons = { inverse: "path://M0 0L10 0L5 9Z" };
  const legendOf = (chart, base) => chart.kind !== "ratios" && chart.kind !== "forest" ? base : {
    ...base, icon: undefined,
    data: chart.series.map((s) => ({ name: s.name, icon: icons[marks[s.slot % marks.length]] || marks[s.slot % marks.length] })),
  };

  function marked(chart, c) {
    const [low, high] = extent(chart);
    const series = chart.series.map((s, lane) => {
      const colour = colourOf(chart, s);
      return {
        type: "custom", name: s.name, itemStyle: { color: colour }, encode: { x: 0, y: 1 }, clip: true,
        data: s.values.map((v, i) => [i, v ?? NaN, s.low[i] ?? NaN, s.high[i] ?? NaN]),
        renderItem: mark(chart, lane, colour, c),
      };
    });
    const y = valueAxis(chart, c);
    if (chart.kind === "ratios") {
      const margin = chart.margin || 0;
      const ends = [Math.min(low, 1 - margin), Math.max(high, 1 + margin)];
      Object.assign(y, chart.log ? decades(chart, ...ends, c) : around(...ends));
      series[0].markLine = { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: c.soft, type: "solid", width: 1 }, data: [{ yAxis: 1 }] };
      if (chart.margin) series[0].markArea = { silent: true, itemStyle: { color: c.soft, opacity: 0.14 }, data: [[{ yAxis: 1 - chart.margin }, { yAxis: 1 + chart.margin }]] };
    } else {
      Object.assign(y, around(Math.min(0, low), Math.max(0, high)));
    }
    const base = common(chart, c);
    return { ...base, legend: legendOf(chart, base.legend), xAxis: categoryAxis(chart, c, slant(chart)), yAxis: y, series };
  }

  // A line for each category, which may have a long name: a point and its interval.
  function forest(chart, c) {
    const [low, high] = extent(chart);
    const lie = (s) => (params, api) => {
      const value = api.value(0), colour = colourOf(chart, s);
      if (Number.isNaN(value)) return undefined;
      const [x, y] = api.coord([value, api.value(1)]);
      const children = [point(marks[s.slot % marks.length], x, y, colour, c.page)];
      if (!Number.isNaN(api.value(2)) && !Number.isNaN(api.value(3))) {
        const [from, to] = [2, 3].map((i) => api.coord([api.value(i), api.value(1)])[0]);
        const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.5 } });
        children.unshift(line(from, y, to, y), line(from, y - 4, from, y + 4), line(to, y - 4, to, y + 4));
      }
      return { type: "group", children };
    };
    const margin = chart.margin || 0, base = common(chart, c);
    const ends = [Math.min(low, 1 - margin), Math.max(high, 1 + margin)];
    return {
      ...base,
      legend: legendOf(chart, base.legend),
      grid: { ...base.grid, bottom: chart.series.length > 1 ? 62 : 28 },
      xAxis: { ...valueAxis(chart, c), ...(chart.log ? decades(chart, ...ends, c) : around(...ends)), name: chart.axis, nameLocation: "middle", nameGap: 26, nameTextStyle: axisText(c) },
      yAxis: { ...rowAxis(chart, c), axisLine: { show: false } },
      series: chart.series.map((s) => ({
        type: "custom", name: s.name, itemStyle: { color: colourOf(chart, s) }, encode: { x: 0, y: 1 }, clip: true, renderItem: lie(s),
        data: s.values.map((v, i) => [v ?? NaN, i, s.low[i] ?? NaN, s.high[i] ?? NaN]),
        markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: c.soft, type: "solid", width: 1 }, data: [{ xAxis: 1 }] },
        markArea: { silent: true, itemStyle: { color: c.soft, opacity: 0.14 }, data: [[{ xAxis: 1 - margin }, { xAxis: 1 + margin }]] },
      })),
    };
  }

  function stacked(chart, c) {
    const base = common(chart, c);
    return {
      ...base,
      grid: { ...base.grid, top: 8, bottom: 56 },
      xAxis: { ...valueAxis(chart, c), name: chart.axis, nameLocation: "middle", nameGap: 24, nameTextStyle: axisText(c) },
      yAxis: rowAxis(chart, c),
      series: chart.series.map((s) => ({
        type: "bar", stack: "all", name: s.name, data: s.values, barMaxWidth: 18,
        itemStyle: { color: colourOf(chart, s), borderColor: c.page, borderWidth: 0.5 },
      })),
    };
  }

  // A step up at each value. The dashes tell the lines apart without colour.
  const dashes = ["solid", [7, 3], [2, 3], [9, 3, 2, 3]];

  function cumulative(chart, c) {
    const base = common(chart, c);
    const all = chart.series.flatMap((s) => s.values);
    const ends = around(Math.min(...all), Math.max(...all));
    const series = chart.series.map((s, i) => {
      const stairs = [[ends.min, 0], ...s.values.map((v, k) => [v, (k + 1) / s.values.length]), [ends.max, 1]];
      return {
        type: "line", step: "end", name: s.name, data: stairs, symbol: "none", animation: false,
        color: colourOf(chart, s), lineStyle: { color: colourOf(chart, s), width: 2, type: dashes[i % dashes.length] },
      };
    });
    return {
      ...base, series,
      legend: { ...base.legend, icon: undefined, itemWidth: 30, itemStyle: { opacity: 0 } },
      grid: { ...base.grid, bottom: 58 },
      tooltip: { ...base.tooltip, axisPointer: { type: "line", lineStyle: { color: c.soft }, snap: false }, formatter: (items) => shares(chart, items[0].axisValue) },
      xAxis: { ...valueAxis(chart, c), ...ends, name: chart.axis, nameLocation: "middle", nameGap: 26, nameTextStyle: axisText(c), axisLine: { show: true, lineStyle: { color: c.soft } }, splitLine: { show: false } },
      yAxis: { ...valueAxis(chart, c), min: 0, max: 1, interval: 0.25, axisLabel: { ...axisText(c), formatter: (v) => `${Math.round(100 * v)} %` } },
    };
  }

  function shares(chart, x) {
    const rows = chart.series.map((s) => {
      const share = s.values.filter((v) => v <= x).length / s.values.length;
      return `<span style="color:${colourOf(chart, s)}">■</span> ${escape(s.name)}: <b>${Math.round(100 * share)} %</b>`;
    });
    return [`<b>within ${number(x)}</b>`, ...rows].join("<br>");
  }

  function lines(chart, c) {
    const base = common(chart, c);
    const all = (of) => chart.series.flatMap((s) => s[of]).filter((v) => v !== null);
    const y = around(Math.min(...all("values")), Math.max(...all("values")));
    return {
      ...base,
      legend: { ...base.legend, icon: undefined, itemWidth: 30, itemStyle: { opacity: 0 } },
      grid: { ...base.grid, bottom: chart.series.length > 1 ? 58 : 30 },
      tooltip: { ...base.tooltip, trigger: "item", formatter: (p) => `${escape(p.seriesName)}<br>${escape(chart.x_axis)} <b>${number(p.value[0])}</b>, ${escape(chart.axis)} <b>${number(p.value[1])}</b>` },
      xAxis: { ...valueAxis(chart, c), name: chart.x_axis, min: Math.min(...all("x")), max: Math.max(...all("x")), nameLocation: "middle", nameGap: 26, nameTextStyle: axisText(c), axisLine: { show: true, lineStyle: { color: c.soft } }, splitLine: { show: false } },
      yAxis: { ...valueAxis(chart, c), ...y },
      series: chart.series.map((s, i) => ({
        type: "line", name: s.name, data: s.values.map((v, k) => [s.x[k], v]), symbolSize: 4, showSymbol: all("values").length <= 30,
        color: colourOf(chart, s), lineStyle: { color: colourOf(chart, s), width: 2, type: dashes[i % dashes.length] },
      })),
    };
  }

  const shapes = { stack: stacked, cdf: cumulative, lines, forest };

  function draw(chart) {
    const element = document.getElementById(chart.id);
    let instance = drawn.get(chart.id);
    if (!instance) {
      if (chart.kind === "stack" || chart.kind === "forest") element.style.height = `${80 + (8 + 14 * nameLines(chart)) * chart.categories.length}px`;
      instance = echarts.init(element, null, { renderer: "svg" });
      drawn.set(chart.id, instance);
      new ResizeObserver(() => instance.resize()).observe(element);
    }
    const c = colours();
    instance.setOption((shapes[chart.kind] || marked)(chart, c), true);
  }

  const redraw = () => data.charts.forEach(draw);
  redraw();
  dark.addEventListener("change", redraw);
  // On paper the page is light, and everything is unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((d) => { d.open = true; });
    redraw();
    // With a view box a drawing scales to the width of the paper.
    drawn.forEach((chart) => chart.getDom().querySelector("svg").setAttribute("viewBox", `0 0 ${chart.getWidth()} ${chart.getHeight()}`));
  });
  addEventListener("afterprint", () => {
    folded.forEach((d) => { d.open = false; });
    redraw();
  });
})();
