import assert from "node:assert/strict";
import { test } from "node:test";
import { perSampleRng } from "../../src/latent_tokens/page/js/rng.js";

// python -c "import numpy as np; print(np.random.default_rng((SEED, ROW)).random(3).tolist())"
const DRAWS = /** @type {[number, number, number[]][]} */ ([
  [0, 0, [0.6369616873214543, 0.2697867137638703, 0.04097352393619469]],
  [1, 7, [0.3596767659247476, 0.6165463657853983, 0.6447812664683817]],
  [4294967301, 3, [0.33029505204248966, 0.7324629634337174, 0.8783024596153973]],
  [9007199254740991, 1099511627776, [0.5669432522696594, 0.10385946608160168, 0.6270773872586928]],
]);

test("the per-sample RNG draws numpy's numbers", () => {
  for (const [seed, row, numbers] of DRAWS) {
    const random = perSampleRng(seed, row);
    assert.deepEqual(numbers.map(random), numbers);
  }
});
