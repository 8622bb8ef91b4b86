/* What the page is about at this moment, in one place: which image, head and token are chosen, how colours are scaled,
 * which heads are switched off, and what the model made of it. Panels read it and listen; none knows of another.
 *
 *     const store = createStore({image: 0, block: 0, head: 0, token: 0, ...});
 *     store.on(['image', 'gates'], (state, changed) => ...);     changed: the Set of keys that did
 *     store.set({image: 3});
 *
 * A value is replaced, never changed in place: `!==` decides whether it is new. A listener may set further values;
 * they are told of once all listeners of the round before have run, so each sees a whole state. */

function createStore(initial) {
  let state = {...initial};
  let waiting = new Set();
  let telling = false;
  const listeners = [];

  function tell() {
    telling = true;
    try {
      while (waiting.size) {
        const changed = waiting;
        waiting = new Set();
        for (const {keys, call} of listeners.slice()) {
          if (keys.some((key) => changed.has(key))) call(state, changed);
        }
      }
    } finally {
      telling = false;
    }
  }

  return {
    get: () => state,

    set(patch) {
      for (const key of Object.keys(patch)) {
        if (state[key] !== patch[key]) waiting.add(key);
      }
      state = {...state, ...patch};
      if (!telling) tell();
    },

    /* Returns a function that ends it. */
    on(keys, call) {
      const listener = {keys: [].concat(keys), call};
      listeners.push(listener);
      return () => {
        const at = listeners.indexOf(listener);
        if (at >= 0) listeners.splice(at, 1);
      };
    },
  };
}
