/* Panels that rest while somebody draws: as long as the pen is down (`penDown` in the store), a panel out of sight does
 * not follow the drawing; it catches up when it comes into sight or the pen rests.
 *
 *     const panel = createResting(createGridPanel, store, model, data);       as createGridPanel(store, model, data) */

export function createResting(create, store, model, data) {
  const late = new Map(); /* listeners that were not called, with the keys that have changed since */
  let inSight = true;
  const wake = () => {
    const calls = Array.from(late);
    late.clear();
    for (const [call, changed] of calls) call(store.get(), changed);
  };
  const patient = (call) => (state, changed) => {
    if (inSight || !state.penDown) return call(state, changed);
    late.set(call, new Set([...(late.get(call) || []), ...changed]));
    return undefined;
  };
  const panel = create({...store, on: (keys, call) => store.on(keys, patient(call))}, model, data);
  new IntersectionObserver((entries) => {
    inSight = entries[entries.length - 1].isIntersecting;
    if (inSight) wake();
  }).observe(panel.element);
  store.on('penDown', (state) => !state.penDown && wake());
  return panel;
}
