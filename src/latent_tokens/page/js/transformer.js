/** The forward pass: a pre-LN transformer, as network/transformer.py without its optimizations. */

import { ROWS, roundUp } from "./kernel.js";
import { applyRotary } from "./rotary.js";
import { gelu } from "./gelu.js";

/** @typedef {import("./network.js").Network} Network */
/**
 * @typedef {object} Input
 * @property {number[]} ids the token id that each slot receives
 * @property {number[]} positions the position in the sequence of each slot
 * @property {Int32Array[]} visible the slots that each slot attends to
 */

const NORM_EPSILON = 1e-5;

/**
 * Return the logits of every slot.
 *
 * They are views of a buffer that the next pass overwrites. MASK is the last one.
 *
 * @param {Network} net
 * @param {Input} input
 * @param {Float32Array[]} [attention] receives the weights of each slot, the mean over heads and layers
 * @returns {Float32Array[]}
 */
export function forward(net, input, attention) {
  const { hidden, logits, mixed, normed, output, qkv } = net.buffers;
  const numSlots = input.ids.length;
  const { width } = net.architecture.size;
  const activation = gelu[net.architecture.gelu ?? "tanh"];
  const x = embed(net, input);

  for (const block of net.blocks) {
    // Attention.
    layerNorm(x, block.attentionNorm, normed);
    multiply(net, normed, block.qkv, qkv, numSlots);
    if (net.rotary) rotate(net, input.positions, net.rotary);
    attend(net, input.visible, attention);
    multiply(net, mixed, block.attentionOut, output, numSlots);
    add(x, output);

    // MLP.
    layerNorm(x, block.mlpNorm, normed);
    multiply(net, normed, block.mlpIn, hidden, numSlots);
    activation(hidden, numSlots * block.mlpIn.columns);
    multiply(net, hidden, block.mlpOut, output, numSlots);
    add(x, output);
  }

  layerNorm(x, net.norm, normed);
  multiply(net, normed, net.head, logits, numSlots);
  const numTokens = net.maskId + 1;
  return input.ids.map((_, slot) =>
    logits.subarray(slot * net.head.columns, slot * net.head.columns + numTokens),
  );

  /**
   * @param {Float32Array} values
   * @param {Float32Array} others
   */
  function add(values, others) {
    for (let i = 0; i < numSlots * width; i++) values[i] += others[i];
  }
}

/**
 * Return the embedding of each token, plus its learned position.
 *
 * @param {Network} net
 * @param {Input} input
 */
function embed({ architecture, embedding, positionEmbedding }, { ids, positions }) {
  const { width } = architecture.size;
  const x = new Float32Array(ids.length * width);
  for (let slot = 0; slot < ids.length; slot++) {
    for (let channel = 0; channel < width; channel++) {
      const position = positionEmbedding ? positionEmbedding[positions[slot] * width + channel] : 0;
      x[slot * width + channel] = embedding[ids[slot] * width + channel] + position;
    }
  }
  return x;
}

/**
 * Write the LayerNorm of every slot to `out`.
 *
 * @param {Float32Array} x
 * @param {import("./network.js").Norm} norm
 * @param {Float32Array} out
 */
function layerNorm(x, { weight, bias }, out) {
  const width = weight.length;
  for (let first = 0; first < x.length; first += width) {
    let mean = 0;
    for (let i = 0; i < width; i++) mean += x[first + i];
    mean /= width;
    let variance = 0;
    for (let i = 0; i < width; i++) variance += (x[first + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / width + NORM_EPSILON);
    for (let i = 0; i < width; i++) out[first + i] = (x[first + i] - mean) * scale * weight[i] + bias[i];
  }
}

/**
 * Write x . weight + bias to `out`, for some slots.
 *
 * @param {Network} net
 * @param {Float32Array} x
 * @param {import("./network.js").Linear} linear
 * @param {Float32Array} out
 * @param {number} numSlots
 */
function multiply({ kernel }, x, { weight, bias, inner, columns }, out, numSlots) {
  // The kernel computes rows up to a multiple. What it writes to the rows past the last slot is never read.
  kernel.multiply(x, weight, out, roundUp(numSlots, ROWS), inner, columns);
  if (!bias) return;
  for (let first = 0; first < numSlots * columns; first += columns) {
    for (let column = 0; column < bias.length; column++) out[first + column] += bias[column];
  }
}

/**
 * Rotate queries and keys of every slot by its position.
 *
 * @param {Network} net
 * @param {number[]} positions
 * @param {import("./rotary.js").RotaryTable} table
 */
function rotate({ architecture, buffers }, positions, table) {
  const { width, heads } = architecture.size;
  const numChannels = width / heads;
  positions.forEach((position, slot) => {
    // The queries of all heads, then the keys of all heads.
    for (let head = 0; head < 2 * heads; head++) {
      applyRotary(buffers.qkv, 3 * slot * width + head * numChannels, position, table);
    }
  });
}

/**
 * Write what the heads of every slot compute to `mixed`.
 *
 * @param {Network} net
 * @param {Int32Array[]} visible
 * @param {Float32Array[]} [attention]
 */
function attend({ architecture, buffers }, visible, attention) {
  const { width, heads, layers } = architecture.size;
  const { mixed, qkv } = buffers;
  const numChannels = width / heads;
  const scale = 1 / Math.sqrt(numChannels);
  const weights = new Float64Array(visible.length);
  for (let query = 0; query < visible.length; query++) {
    const keys = visible[query];
    for (let head = 0; head < heads; head++) {
      // The softmax of the scores.
      const q = 3 * query * width + head * numChannels;
      let largest = -Infinity;
      for (let i = 0; i < keys.length; i++) {
        const k = 3 * keys[i] * width + width + head * numChannels;
        let score = 0;
        for (let channel = 0; channel < numChannels; channel++) score += qkv[q + channel] * qkv[k + channel];
        weights[i] = score * scale;
        if (weights[i] > largest) largest = weights[i];
      }
      let total = 0;
      for (let i = 0; i < keys.length; i++) total += weights[i] = Math.exp(weights[i] - largest);

      // The mean of the values.
      const out = query * width + head * numChannels;
      mixed.fill(0, out, out + numChannels);
      for (let i = 0; i < keys.length; i++) {
        const weight = weights[i] / total;
        const v = 3 * keys[i] * width + 2 * width + head * numChannels;
        for (let channel = 0; channel < numChannels; channel++)
          mixed[out + channel] += weight * qkv[v + channel];
        if (attention) attention[query][keys[i]] += weight / (heads * layers);
      }
    }
  }
}
