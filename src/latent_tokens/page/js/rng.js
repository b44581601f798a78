/** The per-sample RNG: `numpy.random.default_rng((seed, row)).random()`, that is SeedSequence and PCG64. */

const POOL_SIZE = 4;
const MASK_32 = 0xffffffffn;
const MASK_64 = (1n << 64n) - 1n;
const MASK_128 = (1n << 128n) - 1n;
const PCG_MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/**
 * Return a function that draws numbers in [0, 1), as numpy's generator of (seed, row) does.
 *
 * @param {number} seed
 * @param {number} row
 * @returns {() => number}
 */
export function perSampleRng(seed, row) {
  const [stateHigh, stateLow, sequenceHigh, sequenceLow] = seedWords([...words32(seed), ...words32(row)]);
  const increment = ((((sequenceHigh << 64n) | sequenceLow) << 1n) | 1n) & MASK_128;
  let state = increment;
  const advance = () => {
    state = (state * PCG_MULTIPLIER + increment) & MASK_128;
  };
  state = (state + ((stateHigh << 64n) | stateLow)) & MASK_128;
  advance();
  return () => {
    advance();
    // Of the 64 bits of an output, numpy keeps the upper 53.
    return Number(rotatedXor(state) >> 11n) / 2 ** 53;
  };
}

/**
 * Return the output of PCG64: the halves of the state, joined by XOR and rotated by its upper 6 bits.
 *
 * @param {bigint} state
 */
function rotatedXor(state) {
  const joined = ((state >> 64n) ^ state) & MASK_64;
  const rotation = state >> 122n;
  return ((joined >> rotation) | (joined << (64n - rotation))) & MASK_64;
}

/**
 * Return a whole number as 32-bit words, the lowest first.
 *
 * @param {number} value
 */
function words32(value) {
  const words = [];
  let rest = BigInt(value);
  do {
    words.push(Number(rest & MASK_32));
    rest >>= 32n;
  } while (rest);
  return words;
}

/**
 * Return the four 64-bit words that numpy's SeedSequence makes of its entropy.
 *
 * @param {number[]} entropy 32-bit words
 * @returns {bigint[]}
 */
function seedWords(entropy) {
  const pool = mixEntropy(entropy);
  const hash = hasher(0x8b51f9dd, 0x58f38ded);
  const words = Array.from({ length: 2 * POOL_SIZE }, (_, i) => BigInt(hash(pool[i % POOL_SIZE])));
  return [0, 2, 4, 6].map((i) => words[i] | (words[i + 1] << 32n));
}

/**
 * Return the pool of a SeedSequence: its entropy, with every word mixed into every other.
 *
 * @param {number[]} entropy
 */
function mixEntropy(entropy) {
  const hash = hasher(0x43b0d7e5, 0x931e8875);
  const pool = Array.from({ length: POOL_SIZE }, (_, i) => hash(entropy[i] ?? 0));
  for (let source = 0; source < POOL_SIZE; source++) {
    for (let target = 0; target < POOL_SIZE; target++) {
      if (source !== target) pool[target] = mix(pool[target], hash(pool[source]));
    }
  }
  for (const word of entropy.slice(POOL_SIZE)) {
    for (let target = 0; target < POOL_SIZE; target++) pool[target] = mix(pool[target], hash(word));
  }
  return pool;
}

/**
 * Return numpy's hash of a 32-bit word. Its constant changes at every call.
 *
 * @param {number} constant
 * @param {number} multiplier
 * @returns {(word: number) => number}
 */
function hasher(constant, multiplier) {
  return (word) => {
    const mixed = word ^ constant;
    constant = Math.imul(constant, multiplier);
    return foldHalves(Math.imul(mixed, constant));
  };
}

/**
 * @param {number} a
 * @param {number} b
 */
function mix(a, b) {
  return foldHalves(Math.imul(0xca01f9dd, a) - Math.imul(0x4973f715, b));
}

/**
 * Return a word of 32 bits without a sign, its upper half joined to the lower one by XOR.
 *
 * @param {number} word
 */
function foldHalves(word) {
  const bits = word >>> 0;
  return (bits ^ (bits >>> 16)) >>> 0;
}
