/** The compression of GIF images: LZW with codes of growing width, at most 12 bits. */

const MAX_CODES = 4096;

/**
 * Return the bytes of compressed indices.
 *
 * @param {ArrayLike<number>} indices at least one
 * @param {number} bits per index
 * @returns {number[]}
 */
export function compress(indices, bits) {
  const clear = 1 << bits;
  const end = clear + 1;
  /** @type {number[]} */
  const bytes = [];
  /** @type {Map<number, number>} the code of a prefix followed by an index */
  let codes = new Map();
  let width = bits + 1;
  let next = end + 1;
  let buffer = 0;
  let buffered = 0; // bits

  /** @param {number} code */
  const emit = (code) => {
    buffer |= code << buffered;
    buffered += width;
    for (; buffered >= 8; buffered -= 8, buffer >>>= 8) bytes.push(buffer & 255);
  };
  const startOver = () => {
    emit(clear);
    codes = new Map();
    width = bits + 1;
    next = end + 1;
  };

  startOver();
  let prefix = indices[0];
  for (let i = 1; i < indices.length; i++) {
    const key = (prefix << 8) | indices[i];
    const code = codes.get(key);
    if (code !== undefined) {
      prefix = code;
      continue;
    }
    emit(prefix);
    prefix = indices[i];
    codes.set(key, next);
    if (next === 1 << width) width += 1;
    next += 1;
    if (next === MAX_CODES) startOver();
  }
  emit(prefix);
  emit(end);
  if (buffered) bytes.push(buffer & 255);
  return bytes;
}
