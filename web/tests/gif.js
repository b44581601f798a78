/** Print the animation of standard input, {width, height, frames: [colors, duration][]}, as GIF in base64. */

import { readFileSync } from "node:fs";
import { encode } from "../src/gif/index.js";

const { width, height, frames } = JSON.parse(readFileSync(0, "utf8"));
const images = frames.map((/** @type {[number[], number]} */ [colors, duration]) => ({
  pixels: Uint32Array.from(colors).buffer,
  duration,
}));
console.log(Buffer.from(encode({ width, height, frames: images })).toString("base64"));
