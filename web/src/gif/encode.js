/** Animated GIF files, of version 89a: one palette, and in each frame only what has changed. */

import { compress } from "./lzw.js";
import { indexer, paletteOf } from "./palette.js";

/**
 * @typedef {object} Animation
 * @property {number} width
 * @property {number} height
 * @property {{ pixels: ArrayBuffer, duration: number }[]} frames per pixel the bytes of red, green, blue and
 *   alpha, and hundredths of a second
 */
/** @typedef {{ left: number, top: number, width: number, height: number }} Area */

const BITS = 7; // per index
const TRANSPARENT = (1 << BITS) - 1; // the index of pixels that have not changed
const BLOCK = 255; // bytes at most
const KEEP = (1 << 2) | 1; // the frame stays under the next one, which has transparent pixels

/**
 * Return an animation as the bytes of a file. It repeats without end.
 *
 * @param {Animation} animation
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function encode({ width, height, frames }) {
  const images = frames.map(({ pixels }) => new Uint32Array(pixels));
  const palette = paletteOf(images, TRANSPARENT);
  const indexed = images.map(indexer(palette));
  const colors = Array.from({ length: 1 << BITS }, (_, i) => palette[i] ?? 0);
  const size = [...short(width), ...short(height)];
  const parts = [
    [...text("GIF89a"), ...size, 0xf0 | (BITS - 1), 0, 0],
    colors.flatMap((color) => [color & 255, (color >> 8) & 255, color >> 16]),
    [0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0],
  ];
  frames.forEach(({ duration }, i) => {
    const area = changed(indexed[i - 1], indexed[i], width, height);
    const place = [area.left, area.top, area.width, area.height].flatMap(short);
    parts.push([0x21, 0xf9, 4, KEEP, ...short(duration), TRANSPARENT, 0], [0x2c, ...place, 0, BITS]);
    parts.push(...blocks(compress(changes(indexed[i - 1], indexed[i], area, width), BITS)));
  });
  return joined([...parts, [0x3b]]);
}

/**
 * Return the area in which two frames differ, at least one pixel.
 *
 * @param {Uint8Array | undefined} before
 * @param {Uint8Array} after
 * @param {number} width
 * @param {number} height
 * @returns {Area}
 */
function changed(before, after, width, height) {
  if (!before) return { left: 0, top: 0, width, height };
  let left = width;
  let top = height;
  let right = 0;
  let bottom = 0;
  for (let i = 0; i < after.length; i++) {
    if (before[i] === after[i]) continue;
    const x = i % width;
    const y = Math.floor(i / width);
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + 1);
    bottom = Math.max(bottom, y + 1);
  }
  if (!right) return { left: 0, top: 0, width: 1, height: 1 };
  return { left, top, width: right - left, height: bottom - top };
}

/**
 * Return the part of a frame in an area, transparent where it has not changed.
 *
 * @param {Uint8Array | undefined} before
 * @param {Uint8Array} after
 * @param {Area} area
 * @param {number} width of the frame
 */
function changes(before, after, area, width) {
  const image = after.map((index, i) => (before && before[i] === index ? TRANSPARENT : index));
  const part = new Uint8Array(area.width * area.height);
  for (let row = 0; row < area.height; row++) {
    const start = (area.top + row) * width + area.left;
    part.set(image.subarray(start, start + area.width), row * area.width);
  }
  return part;
}

/**
 * Return bytes in blocks, each after its length, and the empty block that ends them.
 *
 * @param {number[]} bytes
 */
function blocks(bytes) {
  const parts = [];
  for (let start = 0; start < bytes.length; start += BLOCK) {
    const block = bytes.slice(start, start + BLOCK);
    parts.push([block.length, ...block]);
  }
  return [...parts, [0]];
}

/** @param {number[][]} parts */
function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let start = 0;
  for (const part of parts) {
    bytes.set(part, start);
    start += part.length;
  }
  return bytes;
}

/** @param {number} value */
const short = (value) => [value & 255, value >> 8];
/** @param {string} characters */
const text = (characters) => [...characters].map((character) => character.charCodeAt(0));
