/* The clock of the walk-through: step, time within it, and whether it plays.
 *
 * A step is animated, then it stays: until the reader goes on, or, while playing, as long as its text takes to read.
 * requestAnimationFrame runs only while something moves. With prefers-reduced-motion each step is shown finished. */

import {limit} from '../base/numbers.js';
import {travelPart} from './pieces.js';

const stepMillis = 2400; /* of the animation at speed 1 */
const wordMillis = 280; /* reading time per word: 214 words a minute */
const restLeast = 3500;

function prefersStill() {
  return window.matchMedia('(prefers-reduced-motion: reduce)').matches;
}

/* `draw()` is called for each frame, `changed()` when the step or playing changes, `words(index)` counts the words of a
 * step. */
export function createStepClock(countOf, {draw, changed, words}) {
  const clock = {index: 0, time: 1, playing: false, speed: 1, rested: 0};
  const restFor = () => Math.max(restLeast, words(clock.index) * wordMillis);
  let frame = 0, last = 0, rest = 0, finish = false;

  function tick(now) {
    const passed = Math.min(100, now - last) * clock.speed; /* no jump after the tab was in the background */
    last = now;
    frame = 0;
    if (clock.time < 1) {
      clock.time = Math.min(1, clock.time + passed / stepMillis);
      if (finish && clock.time >= travelPart) clock.time = 1;
    } else if (clock.playing) {
      rest += passed;
      if (rest >= restFor()) return advance();
    }
    clock.rested = clock.playing && clock.time >= 1 ? Math.min(1, rest / restFor()) : 0;
    draw();
    return run();
  }

  function advance() {
    if (clock.index + 1 < countOf()) clock.go(clock.index + 1);
    else clock.play(false);
    run();
  }

  function run() {
    if (!frame && (clock.playing || clock.time < 1)) frame = requestAnimationFrame(tick);
  }

  function start() {
    if (!frame) last = performance.now();
    run();
  }

  /* Forward, the step is animated; back, its final state is shown after the way there. */
  clock.go = (index) => {
    const to = limit(index, 0, countOf() - 1);
    if (to === clock.index) return;
    finish = to < clock.index;
    clock.index = to;
    clock.time = prefersStill() ? 1 : 0;
    rest = 0;
    changed();
    start();
  };

  clock.play = (on) => {
    if (on && clock.index === countOf() - 1) clock.go(0);
    else if (on && clock.time >= 1) rest = restFor(); /* the next step begins at once */
    clock.playing = on;
    clock.rested = 0;
    changed();
    draw();
    start();
  };

  return clock;
}
