import assert from "node:assert/strict";
import { test } from "node:test";
import { current, inWords, turned, turnsOf } from "../src/page/turns.js";

test("a turn of the slider keeps the steps before it", () => {
  assert.equal(turned("all", 7, "4"), "all,4@7");
  assert.equal(turned("all,4@7", 7, "2"), "all,2@7");
  assert.equal(turned("all,4@7", 9, "0"), "all,4@7,0@9");
  assert.equal(turned("all,4@7", 3, "0"), "all,0@3");
});

test("a turn back to the number before it, or at the first step, leaves one number", () => {
  assert.equal(turned("all,4@7", 7, "all"), "all");
  assert.equal(turned("all,4@7", 1, "4"), "4");
});

test("a text has turns, a current number and words", () => {
  assert.deepEqual(turnsOf("all,4@7"), [
    { from: 1, latents: "all" },
    { from: 7, latents: 4 },
  ]);
  assert.equal(current("all,4@7"), "4");
  assert.equal(inWords("all,4@7"), "all, then 4 from step 7");
  assert.equal(inWords("all"), "all");
});
