import assert from "node:assert/strict";
import { test } from "node:test";
import { attendedBy, inputOf, numLatents, placeIn, rankIn, wordsOf } from "../src/page/pattern.js";

const TOKENS = [0, null, null, 1, null, null]; // given: 0 and 3
const TARGET = 2;
const OTHERS = [5, 1, 4];

/**
 * @param {number} latents
 * @param {boolean} isSkipping
 */
const input = (latents, isSkipping) => inputOf(TOKENS, TARGET, OTHERS, latents, isSkipping);

test("the input has given, latent, blue and later cells", () => {
  const kept = input(1, false);
  assert.deepEqual(kept.slots, [0, 3, 5, 2, 1, 4]);
  const places = [...TOKENS.keys()].map((cell) => placeIn(kept, cell));
  assert.deepEqual(places, ["given", "later", "candidate", "given", "later", "latent"]);
  assert.deepEqual(
    [5, 2, 1, 0].map((cell) => rankIn(kept, cell)),
    [1, 2, 3, null],
  );
  assert.deepEqual(input(1, true).slots, [0, 3, 5, 2]);
  assert.equal(placeIn(input(1, true), 4), "open");
});

test("skipped cells are those that the blue cell does not attend to", () => {
  for (const method of /** @type {const} */ (["scdm", "sidm", "esolm"])) {
    const latents = numLatents(method, 1, OTHERS.length);
    const [skipped, kept] = [true, false].map((isSkipping) => input(latents, isSkipping));
    assert.deepEqual(attendedBy(method, kept, TARGET), attendedBy(method, skipped, TARGET), method);
  }
  const all = input(numLatents("mdm", 1, OTHERS.length), true);
  assert.deepEqual(attendedBy("mdm", all, TARGET), all.slots);
});

test("a given cell attends to no empty cell under semi-causal attention", () => {
  assert.deepEqual(attendedBy("scdm", input(3, true), 0), [0, 3]);
  assert.deepEqual(attendedBy("esolm", input(3, true), 0), [0]);
  assert.deepEqual(attendedBy("scdm", input(3, true), 1), [0, 3, 5, 1]);
});

test("the words count what is attended to", () => {
  const kept = input(1, false);
  assert.equal(
    wordsOf("scdm", kept, TARGET),
    "The blue cell attends to 2 given cells, 1 latent token and itself. " +
      "It does not attend to the other 2 cells of the input.",
  );
  assert.equal(
    wordsOf("scdm", kept, 4),
    "Empty cell 4 attends to 2 given cells, 1 latent token, the blue cell, 1 other later cell and itself.",
  );
  assert.match(wordsOf("esolm", kept, 0), /^This given cell attends to itself\. .* other 5 cells/);
  assert.match(wordsOf("scdm", input(1, true), 4), /^This cell is skipped\./);
});
