/** The weights of a transformer, laid out for the kernel, and the buffers of a forward pass. */

import { bestKernel, COLUMNS, ROWS, roundUp } from "./kernel.js";
import { rotaryTable } from "./rotary.js";

/** @typedef {import("./safetensors.js").Tensor} Tensor */
/** @typedef {import("./kernel.js").Kernel} Kernel */

/**
 * @typedef {object} Architecture the part `model` of config.json
 * @property {{ width: number, heads: number, layers: number }} size
 * @property {number} vocab_size the number of tokens without MASK
 * @property {number} max_length the number of positions
 * @property {"both" | "rotary" | "learned"} positions
 * @property {"tanh" | "exact"} [gelu] "tanh" if left out
 */
/** @typedef {{ weight: Float32Array, bias: Float32Array }} Norm */
/**
 * @typedef {object} Linear
 * @property {Float32Array} weight (inner, columns), transposed for the kernel
 * @property {Float32Array | null} bias (columns)
 * @property {number} inner
 * @property {number} columns the outputs, with columns of zeros up to a multiple of COLUMNS
 */
/**
 * @typedef {object} Block
 * @property {Norm} attentionNorm
 * @property {Linear} qkv
 * @property {Linear} attentionOut
 * @property {Norm} mlpNorm
 * @property {Linear} mlpIn
 * @property {Linear} mlpOut
 */
/** @typedef {"normed" | "qkv" | "mixed" | "hidden" | "output" | "logits"} BufferName */
/**
 * @typedef {object} Network
 * @property {Architecture} architecture
 * @property {number} maskId
 * @property {Kernel} kernel
 * @property {Float32Array} embedding (vocab_size + 1, width)
 * @property {Float32Array | null} positionEmbedding (max_length, width)
 * @property {import("./rotary.js").RotaryTable | null} rotary
 * @property {Block[]} blocks
 * @property {Norm} norm
 * @property {Linear} head
 * @property {Record<BufferName, Float32Array>} buffers each of max_length rows, overwritten by every pass
 */

/**
 * Return the network of an architecture with these weights.
 *
 * @param {Record<string, Tensor>} tensors
 * @param {Architecture} architecture
 * @param {(numFloats: number, numArrays: number) => Kernel} [makeKernel]
 * @returns {Network}
 * @throws {Error} the width is not supported, or a weight is missing or of another shape.
 */
export function buildNetwork(tensors, architecture, makeKernel = bestKernel) {
  const { size, vocab_size, max_length, positions } = architecture;
  const { width, heads, layers } = size;
  if (width % COLUMNS) throw new Error(`width=${width}: must be a multiple of ${COLUMNS}. Use another size.`);
  const widths = bufferWidths(width, vocab_size);
  const numRows = roundUp(max_length, ROWS);
  const kernel = makeKernel(numKernelFloats(architecture, widths, numRows), 4 * layers + 1 + widths.length);
  const half = width / heads / 2;

  /** @type {(name: string, ...shape: number[]) => Float32Array} */
  const weight = (name, ...shape) => checkedTensor(tensors, name, shape);
  /** @type {(name: string) => Norm} */
  const norm = (name) => ({ weight: weight(`${name}.weight`, width), bias: weight(`${name}.bias`, width) });
  /** @type {(name: string, outputs: number, inner: number, hasBias: boolean) => Linear} */
  const linear = (name, outputs, inner, hasBias) => {
    const columns = roundUp(outputs, COLUMNS);
    const transposed = kernel.allocate(inner * columns);
    transpose(weight(`${name}.weight`, outputs, inner), outputs, inner, columns, transposed);
    return { weight: transposed, bias: hasBias ? weight(`${name}.bias`, outputs) : null, inner, columns };
  };
  /** @type {(name: string) => Block} */
  const block = (name) => ({
    attentionNorm: norm(`${name}.attention_norm`),
    qkv: linear(`${name}.qkv`, 3 * width, width, false),
    attentionOut: linear(`${name}.attention_out`, width, width, false),
    mlpNorm: norm(`${name}.mlp_norm`),
    mlpIn: linear(`${name}.mlp_in`, 4 * width, width, true),
    mlpOut: linear(`${name}.mlp_out`, width, 4 * width, true),
  });

  return {
    architecture,
    maskId: vocab_size,
    kernel,
    embedding: weight("embedding.weight", vocab_size + 1, width),
    positionEmbedding: positions === "rotary" ? null : positionWeights(tensors, max_length, width),
    rotary: positions === "learned" ? null : rotaryTable(max_length, half),
    blocks: Array.from({ length: layers }, (_, layer) => block(`blocks.${layer}`)),
    norm: norm("norm"),
    head: linear("head", vocab_size + 1, width, true),
    buffers: /** @type {Record<BufferName, Float32Array>} */ (
      Object.fromEntries(widths.map(([name, columns]) => [name, kernel.allocate(numRows * columns)]))
    ),
  };
}

/**
 * Return the width of each buffer that the kernel reads or writes.
 *
 * @param {number} width
 * @param {number} vocabSize
 * @returns {[BufferName, number][]}
 */
function bufferWidths(width, vocabSize) {
  return [
    ["normed", width],
    ["qkv", 3 * width],
    ["mixed", width],
    ["hidden", 4 * width],
    ["output", width],
    ["logits", roundUp(vocabSize + 1, COLUMNS)],
  ];
}

/**
 * Return how many numbers the kernel's arrays have: 12 width^2 per block, the head, and the buffers.
 *
 * @param {Architecture} architecture
 * @param {[BufferName, number][]} widths
 * @param {number} numRows
 */
function numKernelFloats({ size, vocab_size }, widths, numRows) {
  const head = size.width * roundUp(vocab_size + 1, COLUMNS);
  const buffers = widths.reduce((total, [, columns]) => total + numRows * columns, 0);
  return 12 * size.layers * size.width ** 2 + head + buffers;
}

/**
 * Return the learned embedding of positions. Until version 1.0 its weights are stored as `place.weight`.
 *
 * @param {Record<string, Tensor>} tensors
 * @param {number} maxLength
 * @param {number} width
 */
function positionWeights(tensors, maxLength, width) {
  const name = "place.weight" in tensors ? "place.weight" : "position_embedding.weight";
  return checkedTensor(tensors, name, [maxLength, width]);
}

/**
 * @param {Record<string, Tensor>} tensors
 * @param {string} name
 * @param {number[]} shape
 */
function checkedTensor(tensors, name, shape) {
  const stored = tensors[name]?.shape.join(", ");
  if (stored === shape.join(", ")) return tensors[name].data;
  const difference = `${name} is (${stored ?? "missing"}), and (${shape.join(", ")}) by its config`;
  throw new Error(`model.safetensors: corrupt, or not of this config (${difference}). Save the model again.`);
}

/**
 * Write the transpose of a matrix, with columns of zeros at its end.
 *
 * @param {Float32Array} matrix (outputs, inner)
 * @param {number} outputs
 * @param {number} inner
 * @param {number} columns of the transpose
 * @param {Float32Array} transposed (inner, columns)
 */
function transpose(matrix, outputs, inner, columns, transposed) {
  for (let row = 0; row < outputs; row++) {
    for (let k = 0; k < inner; k++) transposed[k * columns + row] = matrix[row * inner + k];
  }
}
