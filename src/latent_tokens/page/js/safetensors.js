/** The weights of a model: a file in the safetensors format, in float32 or bfloat16. */

/** @typedef {{ data: Float32Array, shape: number[] }} Tensor */

const HEADER_BYTES = 8; // the length of the header, as a 64-bit integer

/**
 * Return the tensors of a safetensors file by name, in float32.
 *
 * @param {ArrayBuffer} bytes
 * @returns {Record<string, Tensor>}
 * @throws {Error} a tensor is of another type than F32 and BF16.
 */
export function readSafetensors(bytes) {
  const headerLength = Number(new DataView(bytes).getBigUint64(0, true));
  const start = HEADER_BYTES + headerLength;
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, HEADER_BYTES, headerLength)));
  /** @type {Record<string, Tensor>} */
  const tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [first, last] = entry.data_offsets;
    // A copy is aligned. The bytes in the file may not be.
    tensors[name] = {
      data: toFloat32(bytes.slice(start + first, start + last), entry.dtype),
      shape: entry.shape,
    };
  }
  return tensors;
}

/**
 * @param {ArrayBuffer} bytes
 * @param {string} dtype
 */
function toFloat32(bytes, dtype) {
  if (dtype === "F32") return new Float32Array(bytes);
  if (dtype !== "BF16")
    throw new Error(`dtype=${dtype}: is not supported. Save the model in float32 or bfloat16.`);
  const halves = new Uint16Array(bytes);
  const values = new Float32Array(halves.length);
  const bits = new Uint32Array(values.buffer);
  // A bfloat16 is the upper half of a float32.
  halves.forEach((half, i) => {
    bits[i] = half << 16;
  });
  return values;
}
