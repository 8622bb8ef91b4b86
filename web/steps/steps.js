/* Panel 4: the computation of one head for one token, step by step, with its numbers.
 *
 * The state is the index of the step and the time within it, 0 to 1. requestAnimationFrame runs only while something
 * moves. With prefers-reduced-motion each step is shown finished. After a new selection the panel is computed only when
 * it is visible, so that a key held down in another panel stays fast. */

const stepMillis = 1300; /* duration of the animation at speed 1 */
const stepRest = 1500; /* pause after it, while playing */

function prefersStill() {
  return window.matchMedia('(prefers-reduced-motion: reduce)').matches;
}

/* The clock of the animation: step, time, and whether it plays. `draw` is called for each frame, `changed` when the
 * step or playing changes. */
function createStepClock(count, draw, changed) {
  const clock = {index: 0, time: 1, playing: false, speed: 1, finished: false};
  let frame = 0, last = 0, rest = 0;

  function tick(now) {
    const passed = Math.min(100, now - last) * clock.speed; /* no jump after the tab was in the background */
    last = now;
    frame = 0;
    if (clock.time < 1) {
      clock.time = Math.min(1, clock.time + passed / stepMillis);
      if (clock.finished && clock.time >= travelPart) clock.time = 1;
      draw();
      rest = 0;
    } else if ((rest += passed) >= stepRest && clock.playing) {
      if (clock.index + 1 < count) clock.go(clock.index + 1);
      else clock.play(false);
    }
    run();
  }

  function run() {
    if (!frame && (clock.playing || clock.time < 1)) {
      frame = requestAnimationFrame(tick);
    }
  }

  function start() {
    if (!frame) last = performance.now();
    run();
  }

  /* Forward, the step is animated; back, its final state is shown at once. */
  clock.go = (index) => {
    const to = Math.max(0, Math.min(count - 1, index));
    if (to === clock.index) return;
    clock.finished = to < clock.index;
    clock.index = to;
    clock.time = prefersStill() ? 1 : 0;
    rest = 0;
    changed();
    start();
  };
  clock.play = (on) => {
    if (on && clock.index === count - 1) clock.go(0);
    clock.playing = on;
    rest = stepRest; /* the first step starts without a pause */
    changed();
    start();
  };
  return clock;
}

/* ---- The stage --------------------------------------------------------------------------------------------------- */

/* A canvas as wide as its container and as high as the highest step, so that the content below does not move. */
function createStage(store, model) {
  const canvas = element('canvas', {id: 'steps-stage', class: 'stage', tabindex: 0, role: 'img'});
  let scenes = null, facts = null, colours = null, height = 0, width = 0, before = null, now = null;

  function lay() {
    width = Math.max(280, canvas.parentNode ? canvas.parentNode.clientWidth : 0);
    scenes = stepScenes(facts, stageSizes(facts, width));
    const all = stepKeys.map((key) => ({scene: scenes[key], ...placePieces(scenes[key].pieces, width)}));
    height = Math.max(...all.map((one) => one.height)) + 6;
    for (const one of all) for (const place of one.placed.values()) place.box.y += (height - one.height) / 2;
    scenes = Object.fromEntries(stepKeys.map((key, n) => [key, all[n]]));
    canvas.style.height = height + 'px';
  }

  /* The piece and cell under the pointer. */
  function under(event) {
    const at = canvas.getBoundingClientRect();
    const x = ((event.clientX - at.left) * width) / at.width, y = ((event.clientY - at.top) * height) / at.height;
    for (const {piece, box} of now ? now.placed.values() : []) {
      const cells = cellsBox(box), across = (x - cells.x) / cells.width, down = (y - cells.y) / cells.height;
      if (across < 0 || across >= 1 || down < 0 || down >= 1) continue;
      if (piece.kind === 'matrix') {
        return {piece, row: Math.floor(down * piece.rows), column: Math.floor(across * piece.columns)};
      }
      if (piece.kind === 'picture' && (y - cells.y) / cells.width < model.down / model.across) {
        const column = Math.floor(across * model.across);
        const row = Math.floor(((y - cells.y) / cells.width) * model.across);
        return {piece, token: model.first + row * model.across + column};
      }
    }
    return null;
  }

  function tipLines(event) {
    const hit = event && under(event);
    if (!hit) return null;
    const {piece, row, column, token} = hit;
    if (token !== undefined) {
      return piece.weights ? [percent(piece.weights[token]), 'on ' + facts.keyName(token)] : [facts.keyName(token)];
    }
    const value = piece.values[row * piece.columns + column];
    const text = !Number.isFinite(value) ? 'hidden' : piece.signed ? value.toPrecision(4) : percent(value);
    return [`${piece.name.text}${piece.name.sub || ''}${piece.name.sup || ''}  ${text}`,
      piece.rowName ? `row: ${piece.rowName(row)}` : `row ${row + 1}`,
      piece.columnName ? `column: ${piece.columnName(column)}` : `column ${column + 1}`];
  }

  attachTip(canvas, tipLines);
  canvas.addEventListener('click', (event) => {
    const hit = under(event);
    if (!hit) return;
    const token = hit.token !== undefined ? hit.token : hit.piece.rowName ? hit.row : null;
    if (token !== null) store.set({token});
  });

  return {
    canvas,
    show(next) {
      facts = next;
      colours = themeColours();
      before = null;
      now = null;
      lay();
    },
    enter(key) {
      if (now === scenes[key]) return;
      before = now;
      now = scenes[key];
    },
    draw(time) {
      const context = sizeCanvas(canvas, width, height);
      drawStage(canvasPen(context), before, now, time, {colours, facts});
      if (time >= 1) before = null;
    },
    get width() {
      return width;
    },
  };
}

/* ---- The panel --------------------------------------------------------------------------------------------------- */

function createStepControls(clock) {
  const button = (id, text, label, press) =>
    element('button', {type: 'button', id: 'steps-' + id, class: 'toggle', 'aria-label': label, onclick: press}, text);
  const back = button('back', '◀ Back', 'Back one step', () => clock.go(clock.index - 1));
  const play = button('play', 'Play', 'Play the steps', () => clock.play(!clock.playing));
  const next = button('forward', 'Forward ▶', 'Forward one step', () => clock.go(clock.index + 1));
  const slider = element('input', {type: 'range', id: 'steps-slider', min: 1, max: stepKeys.length, step: 1, value: 1,
    oninput: () => clock.go(Number(slider.value) - 1)});
  const speed = selectControl('Speed', [['0.5', 'half'], ['1', 'normal'], ['2', 'double']], '1',
    (value) => (clock.speed = Number(value)));
  return {
    elements: [element('div', {class: 'step-buttons', role: 'group', 'aria-label': 'Steps'}, back, play, next),
      element('label', {class: 'control step-slider'}, element('span', null, 'Step'), slider), speed],
    update() {
      const key = stepKeys[clock.index];
      back.disabled = clock.index === 0;
      next.disabled = clock.index === stepKeys.length - 1;
      play.textContent = clock.playing ? 'Pause' : 'Play';
      play.setAttribute('aria-label', clock.playing ? 'Pause' : 'Play the steps');
      slider.value = String(clock.index + 1);
      slider.setAttribute('aria-valuetext', `${clock.index + 1} of ${stepKeys.length}: ${stepTitles[key]}`);
    },
  };
}

/* Controls for block, head and token. */
function createStepChoice(store, model) {
  const pick = (id, label, key) => {
    const select = element('select', {id: 'steps-' + id, onchange: () => store.set({[key]: Number(select.value)})});
    return {select, element: element('label', {class: 'control'}, element('span', null, label), select)};
  };
  const block = pick('block', 'Block', 'block'), head = pick('head', 'Head', 'head');
  const token = pick('token', 'From', 'token');
  const fill = (select, count, name, chosen) => {
    if (select.length !== count) {
      select.replaceChildren(...Array.from({length: count}, (_, n) => element('option', {value: n}, name(n))));
    }
    select.value = String(chosen);
  };
  block.select.addEventListener('change', () => {
    const {block: b, head: h} = store.get();
    if (h >= model.blocks[b].heads) store.set({head: model.blocks[b].heads - 1});
  });
  return {
    elements: [block.element, head.element, token.element],
    update(state) {
      fill(block.select, model.blocks.length, (n) => String(n + 1), state.block);
      fill(head.select, model.blocks[state.block].heads, (n) => String(n + 1), state.head);
      fill(token.select, model.tokens, (n) => tokenName(model, n), state.token);
    },
  };
}

function createStepsPanel(store, model, data) {
  const title = 'One head, step by step', stage = createStage(store, model);
  const heading = element('h3', {id: 'step-title'}), formula = element('div', {class: 'step-formula'});
  const words = element('p', {class: 'step-words', id: 'steps-words'});
  const numbers = element('div', {class: 'step-numbers'});
  let facts = null, run = null, stale = true, inSight = false;

  const clock = createStepClock(stepKeys.length, () => stage.draw(clock.time), () => changeStep(true));
  const controls = createStepControls(clock), choice = createStepChoice(store, model);

  /* The block is recomputed only for another image, block or set of gates. */
  function refresh() {
    const state = store.get(), key = state.result.inputs[state.block], gates = state.gates[state.block];
    if (!stale && facts) return;
    stale = false;
    if (!run || run.key !== key || run.gates !== gates) {
      run = {key, gates, made: runBlock(model, model.blocks[state.block], key, gates)};
    }
    facts = {...stepFacts(model, state, run.made), ...stepPictures(state)};
    stage.show(facts);
    clock.time = 1;
    choice.update(state);
    changeStep(false);
    stage.draw(1);
  }

  /* Canvases of the image and of the head's map over it, created on demand. */
  function stepPictures(state) {
    const image = data.images[state.image], {rows, columns} = model.config;
    const made = {photo: null, map: null};
    return {
      photo() {
        if (!made.photo) drawPicture((made.photo = element('canvas')), image.bytes, rows, columns);
        return made.photo;
      },
      map() {
        const row = lookRow(state, model, state.block, state.head);
        if (!made.map) {
          drawMap((made.map = element('canvas')), model, row, {outline: image.outline,
            scale: weightScale('linear', 1 / model.tokens, largestOf(row)), mark: state.token, accent: themeColours().accent});
        }
        return made.map;
      },
    };
  }

  /* `said`: the change was made in this panel, not in another one. */
  function changeStep(said) {
    if (!facts) {
      refresh();
      return;
    }
    const key = stepKeys[clock.index];
    stage.enter(key);
    controls.update();
    heading.textContent = `${clock.index + 1} of ${stepKeys.length}: ${stepTitles[key]}`;
    formula.replaceChildren(formulaElement(stepFormulas(facts)[key]));
    words.textContent = stepWords(facts)[key];
    numbers.replaceChildren(...stepNumbers(facts, key));
    numbers.classList.toggle('long', key === 'sum');
    stage.canvas.setAttribute('aria-label', stepSummary(facts, key));
    if (clock.time >= 1) stage.draw(1);
    if (said && !clock.playing) announce(heading.textContent);
  }

  const body = element('div', {class: 'steps', onkeydown: (event) => stepKey(event, clock, stage.canvas)},
    element('div', {class: 'controls'}, controls.elements),
    element('div', {class: 'step-head'}, heading, formula), words,
    element('div', {class: 'stage-place'}, stage.canvas), numbers,
    element('p', {class: 'hint'}, 'Purple is negative, orange is positive. Hover over a cell for its value; click a ' +
      'row or a patch to select that token. With the stage focused, arrow keys step and space plays.'));
  const text = 'The computation of one head, step by step, for the selected image and token.';
  const panel = {
    id: 'steps',
    title,
    element: panelFrame('steps', title, text, choice.elements, body),
    toSvg() {
      refresh();
      return stepSvg(facts, stepKeys[clock.index], `${data.title}, ${data.images[store.get().image].name}`);
    },
  };

  const wake = () => inSight && refresh();
  store.on(['result', 'block', 'head', 'token', 'theme'], () => {
    stale = true;
    wake();
  });
  new IntersectionObserver((entries) => {
    inSight = entries[entries.length - 1].isIntersecting;
    wake();
  }, {rootMargin: '200px'}).observe(panel.element);
  window.addEventListener('beforeprint', refresh); /* all panels are visible in print */
  new ResizeObserver(() => {
    if (!facts || stage.canvas.parentNode.clientWidth === stage.width) return;
    stale = true;
    wake();
  }).observe(panel.element);
  return panel;
}

function stepKey(event, clock, canvas) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
  const moves = {ArrowLeft: -1, ArrowRight: 1};
  if (moves[event.key]) clock.go(clock.index + moves[event.key]);
  else if (event.key === ' ' && event.target === canvas) clock.play(!clock.playing);
  else return;
  event.preventDefault();
}
