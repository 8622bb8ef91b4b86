/* The state of the page: the selected image, head and token, the colour scale, the gates of the heads, and the model's
 * result. Panels read it and listen to changes; they do not depend on each other.
 *
 *     const store = createStore({image: 0, block: 0, head: 0, token: 0, ...});
 *     store.on(['image', 'gates'], (state, changed) => ...);     changed: the Set of changed keys
 *     store.follow(['image', 'gates'], (state) => ...);          the same, and a first call now
 *     store.set({image: 3});
 *
 * Values are replaced, never modified in place: `!==` detects changes. A listener may set further values; these are
 * reported after all listeners of the current round have run, so each listener sees a consistent state. */

export function createStore(initial) {
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
        for (const {keys, call} of listeners) {
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

    on(keys, call) {
      listeners.push({keys: [].concat(keys), call});
    },

    follow(keys, call) {
      call(state, new Set());
      this.on(keys, call);
    },
  };
}
