import assert from "node:assert/strict";
import { test } from "node:test";
import { requestsOf, withSample } from "../src/page/measure.js";
import { SeriesList, wilson } from "../src/page/series.js";

/** @typedef {import("../src/page/types.js").ModelEntry} ModelEntry */
/** @typedef {import("../src/engine/trace.js").Trace} Trace */

const MODEL = /** @type {ModelEntry} */ ({ name: "m", side: 2, dial: true });
/** @param {Partial<import("../src/page/measure.js").Plan>} plan */
const requests = (plan) => [
  ...requestsOf({ model: MODEL, count: 2, puzzles: null, settings: { seed: 5 }, ...plan }),
];

test("a sample of the empty grid draws the random numbers of its row", () => {
  const all = requests({});
  assert.deepEqual(
    all.map(({ row }) => row),
    [0, 0, 0, 0, 1, 1, 1, 1],
  );
  assert.deepEqual(
    all.slice(4).map(({ latents }) => latents),
    [0, 4, 16, "all"],
  );
  assert.deepEqual(all[0].tokens, [null, null, null, null]);
  assert.deepEqual([all[0].temperature, all[0].seed], [1, 5]);
});

test("a puzzle is decoded at temperature 0, once if n is fixed", () => {
  const all = requests({ model: { ...MODEL, dial: false }, puzzles: ["1..2", "...."] });
  assert.equal(all.length, 2);
  assert.deepEqual([all[0].tokens, all[0].temperature, all[0].row], [[0, null, null, 1], 0, undefined]);
});

test("a point is the mean of its samples", () => {
  const traceOf = (/** @type {boolean} */ right, /** @type {number} */ processed) =>
    /** @type {Trace} */ (
      /** @type {unknown} */ ({
        start: { settings: { latents: 4 }, all_processed: 100 },
        end: { right, processed },
      })
    );
  const point = withSample(withSample(undefined, 2, traceOf(true, 50)), 2, traceOf(false, 70));
  assert.deepEqual([point.right, point.done, point.of, point.processed], [1, 2, 2, 60]);
  assert.ok(Math.abs(point.relative - 0.6) < 1e-12);
  const { low, high } = wilson(0.5, 100);
  assert.deepEqual([low.toFixed(3), high.toFixed(3)], ["0.404", "0.596"]);
});

test("the curves of a method have its color and different marks", () => {
  const list = new SeriesList();
  const add = (/** @type {string} */ method) =>
    list.add({ model: "m", method, name: method, task: "t", measure: "sampled", points: new Map() });
  const [first, , third] = ["scdm", "mdm", "scdm"].map(add);
  assert.deepEqual([first.mark, third.mark], [0, 1]);
  list.remove(first);
  const [again, window] = ["scdm", "ar-mtp-window-3"].map(add);
  assert.deepEqual([again.mark, window.mark, window.method], [0, 0, "ar-mtp-window"]);
  assert.deepEqual(list.of("t", "solved"), []);
});
