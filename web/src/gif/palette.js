/** A palette of the most frequent colors. A color is a number: the lowest byte is red, the third one blue. */

const RGB = 0xffffff;
const SIMILAR = 0xf8f8f8; // colors with equal upper five bits in each byte are similar

/**
 * Return the most frequent colors of images, of similar ones the most frequent.
 *
 * @param {Uint32Array[]} images
 * @param {number} size the number of colors
 * @returns {number[]}
 */
export function paletteOf(images, size) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const image of images) {
    for (const pixel of image) counts.set(pixel & RGB, (counts.get(pixel & RGB) ?? 0) + 1);
  }
  /** @type {Map<number, { color: number, most: number, total: number }>} */
  const groups = new Map();
  for (const [color, count] of counts) {
    const group = groups.get(color & SIMILAR) ?? { color, most: 0, total: 0 };
    if (count > group.most) Object.assign(group, { color, most: count });
    group.total += count;
    groups.set(color & SIMILAR, group);
  }
  const ranked = [...groups.values()].sort((a, b) => b.total - a.total);
  return ranked.slice(0, size).map(({ color }) => color);
}

/**
 * Return a function that returns the palette's index of each pixel: the nearest color.
 *
 * @param {number[]} palette
 * @returns {(image: Uint32Array) => Uint8Array}
 */
export function indexer(palette) {
  /** @type {Map<number, number>} */
  const known = new Map();
  return (image) =>
    Uint8Array.from(image, (pixel) => {
      const color = pixel & RGB;
      const index = known.get(color) ?? nearest(palette, color);
      known.set(color, index);
      return index;
    });
}

/**
 * @param {number[]} palette
 * @param {number} color
 */
function nearest(palette, color) {
  const distances = palette.map((other) => distance(other, color));
  return distances.indexOf(Math.min(...distances));
}

/**
 * @param {number} first
 * @param {number} second
 */
function distance(first, second) {
  const channel = (/** @type {number} */ shift) => ((first >> shift) & 255) - ((second >> shift) & 255);
  return channel(0) ** 2 + channel(8) ** 2 + channel(16) ** 2;
}
