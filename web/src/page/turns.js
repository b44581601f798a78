/**
 * The number of latent tokens of a decode, which may change at a step.
 *
 * As text it is "4", "all", or "all,4@7": all, then 4 from step 7 on.
 */

/** @typedef {import("../engine/decoding.js").Turn} Turn */

/**
 * Return the number that a setting names, or its word.
 *
 * @param {string} value
 */
export const count = (value) => (/^\d+$/.test(value) ? Number(value) : /** @type {"all"} */ (value));

/**
 * Return the turns of a text.
 *
 * @param {string} text
 * @returns {Turn[]}
 */
export function turnsOf(text) {
  return text.split(",").map((part) => {
    const [latents, from = "1"] = part.split("@");
    return { from: Number(from), latents: count(latents) };
  });
}

/** @param {Turn[]} turns */
const textOf = (turns) =>
  turns.map(({ from, latents }) => (from > 1 ? `${latents}@${from}` : `${latents}`)).join();

/**
 * Return the number in force after the last change.
 *
 * @param {string} text
 */
export const current = (text) => String(turnsOf(text).at(-1)?.latents);

/**
 * Return the text after the number is changed from a step on. The steps before it keep theirs.
 *
 * @param {string} text
 * @param {number} step from 1
 * @param {string} latents
 */
export function turned(text, step, latents) {
  const before = turnsOf(text).filter(({ from }) => from < step);
  const isSame = String(before.at(-1)?.latents) === latents;
  return textOf(isSame ? before : [...before, { from: step, latents: count(latents) }]);
}

/**
 * Return a text in words, for example "all, then 4 from step 7".
 *
 * @param {string} text
 */
export const inWords = (text) =>
  turnsOf(text)
    .map(({ from, latents }) => (from > 1 ? `${latents} from step ${from}` : `${latents}`))
    .join(", then ");
