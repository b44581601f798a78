import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { connect } from "../../src/latent_tokens/page/js/client.js";
import { decode } from "../../src/latent_tokens/page/js/trace.js";
import { loadModel } from "../../src/latent_tokens/page/js/model.js";
import { answering } from "../../src/latent_tokens/page/js/worker.js";

const FOLDER = new URL("../../src/latent_tokens/bundled/sudoku-6-scdm/", import.meta.url);
const CONFIG = JSON.parse(readFileSync(new URL("config.json", FOLDER), "utf8"));
const TOKENS = Array.from("123456456123.........................", (sign) =>
  sign === "." ? null : Number(sign) - 1,
);
const REQUEST = { tokens: TOKENS.slice(0, 36), latents: 2, candidates: 2 };

/** Return the bytes of the weights, as a fetch would. */
const weights = () => new Uint8Array(readFileSync(new URL("model.safetensors", FOLDER))).buffer;

/** Return a client whose worker is on the same thread, and has loaded the model. */
async function loadedClient() {
  /** @type {import("../../src/latent_tokens/page/js/client.js").Port} */
  const port = {
    onmessage: null,
    onerror: null,
    postMessage: (message) => void answer(message),
    terminate() {},
  };
  const answer = answering((data) =>
    port.onmessage?.call(/** @type {any} */ (port), new MessageEvent("message", { data })),
  );
  const client = connect(port);
  await client.load("six", weights(), CONFIG);
  return client;
}

test("a client returns the trace of a direct decode", async () => {
  const client = await loadedClient();
  /** @type {string[]} */
  const types = [];
  const trace = await client.decode("six", REQUEST, { onEvent: ([type]) => types.push(type) });
  const direct = decode(loadModel(weights(), CONFIG, "six"), REQUEST);
  assert.deepEqual({ ...trace.end, seconds: 0 }, { ...direct.end, seconds: 0 });
  assert.deepEqual([trace.start, trace.frames], [direct.start, direct.frames]);
  assert.deepEqual(types, ["start", ...trace.frames.map(() => "frame"), "end"]);
});

test("an aborted decode ends between two steps", async () => {
  const client = await loadedClient();
  const control = new AbortController();
  let frames = 0;
  const onEvent = () => ++frames === 3 && control.abort();
  await assert.rejects(client.decode("six", REQUEST, { onEvent, signal: control.signal }), {
    name: "AbortError",
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(frames, 3);
  assert.equal((await client.decode("six", REQUEST)).frames.length, 24);
});

test("a mistake in a request rejects with its line", async () => {
  const client = await loadedClient();
  await assert.rejects(client.decode("nine", REQUEST), {
    message: "model=nine: is not loaded. Send load first.",
  });
  await assert.rejects(client.decode("six", { ...REQUEST, latents: -1 }), {
    message: /^latents=-1: must be a whole/,
  });
});
